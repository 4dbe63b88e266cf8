/** Tests another program as the subject of a conformance run. */
import type { Answer, Complete, OperationName, Subject } from "lockstep/conformance";
import type { DialectName } from "../../dialects/table.js";
import { ArgumentError, UnsupportedError } from "../../errors.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { shownJson } from "../../io/json/json-shown.js";
import { describe } from "../../options.js";
import { VERSION } from "../manifest.js";
import { type Expectation, requireDecided, unstoredFields } from "./expectation.js";
import type { Harness } from "./harness.js";
import { answerOf, inputMessage, outputsOf } from "./message.js";
import { type Support, supportOf } from "./support.js";
import { type Message, type Peer, type Reply, request, SubjectError, send } from "./talk.js";

/** The protocol version. */
const PROTOCOL = 1;

/** The time limit for a process to start and send its hello message, in milliseconds. */
const START_MS = 60_000;

/** The subject's description of itself. */
export interface Hello {
  readonly name: string;
  readonly operations: ReadonlyMap<OperationName, Support>;
}

/** The options of `ProgramSubject`. */
export interface SubjectOptions {
  /** The time limit for an answer, in milliseconds. */
  readonly deadline: number;
  /** Computes the expected answers. Their names, types and shapes are sent to the subject. */
  readonly reference: Complete<Subject>;
  /** Whether an answer with other bits is an error that begins shrinking. Default true. */
  readonly compares?: boolean;
}

type Ask = (input: object) => Promise<Answer>;

/** Wraps a subject so that it computes the answer to each input only once. */
export function withCache(subject: Complete<Subject>): Complete<Subject> {
  const answers = new WeakMap<object, Answer>();
  const functions = Object.entries(subject).map(([name, answer]) => {
    const ask: Ask = async (input) => {
      const cached = answers.get(input) ?? (await answer(input as never));
      answers.set(input, cached);
      return cached;
    };
    return [name, ask] as const;
  });
  return Object.fromEntries(functions) as Complete<Subject>;
}

/** A program that answers cases. It is restarted if it has ended. */
export class ProgramSubject {
  #peer: Peer | undefined;
  #count = 0;
  #hasFailed = false;
  #deadline: number;

  private constructor(
    private readonly begin: () => Peer,
    private readonly harness: Harness,
    private readonly options: SubjectOptions,
  ) {
    this.#deadline = options.deadline;
  }

  /**
   * Starts a program by `begin`. Throws `SubjectError` if the program cannot be started or sends no hello message,
   * `ArgumentError` for unknown operations.
   */
  static async start(
    begin: () => Peer,
    harness: Harness,
    options: SubjectOptions,
  ): Promise<{ readonly program: ProgramSubject; readonly hello: Hello; readonly subject: Subject }> {
    const program = new ProgramSubject(begin, harness, options);
    try {
      const hello = await program.#hello();
      const functions = Array.from(
        hello.operations,
        ([name, { dialect }]) => [name, program.#asking(name, dialect)] as const,
      );
      return { program, hello, subject: Object.fromEntries(functions) };
    } catch (error) {
      program.dispose();
      throw error;
    }
  }

  /** Ends the program. */
  dispose(): void {
    this.#peer?.kill();
  }

  /** Sends a message that has no answer, if the program is running. */
  send(fields: JsonObject): void {
    if (this.#peer?.isRunning) send(this.#peer, { fields, tensors: [] });
  }

  async #hello(): Promise<Hello> {
    this.#peer = this.begin();
    const fields = { type: "hello", protocol: PROTOCOL, version: VERSION };
    return helloOf(
      await request(this.#peer, { fields, tensors: [] }, Math.max(START_MS, this.options.deadline)),
      this.harness,
    );
  }

  async #ask(message: Message): Promise<Reply> {
    if (!this.#peer?.isRunning) await this.#hello();
    try {
      return await request(this.#peer as Peer, message, this.#deadline);
    } catch (error) {
      // shrinking repeats a case that hangs many times, so the time limit is lowered
      if (error instanceof SubjectError) this.#deadline = Math.min(this.#deadline, 2000);
      throw error;
    }
  }

  #asking(operation: OperationName, dialect: DialectName | undefined): Ask {
    return async (input) => {
      const expected = await this.options.reference[operation](input as never);
      const expectation: Expectation = {
        input,
        expected,
        optional: unstoredFields(input, expected),
        ...(dialect ? { dialect } : {}),
      };
      requireDecided(this.harness, operation, expectation);
      const { input: inputFields, tensors } = inputMessage(this.harness, input);
      const id = ++this.#count;
      const phase = this.#hasFailed ? "shrink" : "draw";
      const fields = {
        type: "case",
        id,
        operation,
        phase,
        input: inputFields,
        outputs: outputsOf(expectation),
      };
      const reply = await this.#ask({ fields, tensors });
      const { id: answerId, declined, error } = reply.fields;
      if (answerId !== id) {
        this.dispose();
        throw new SubjectError(
          `the subject answered ${describe(answerId)} to case ${id}; repeat the id of the case`,
        );
      }
      if (typeof declined === "string") throw new UnsupportedError(operation, declined);
      if (error !== undefined)
        throw this.#failed(new SubjectError(`the subject reports an error: ${text(error)}`));
      try {
        const answer = answerOf(this.harness, reply.frame, expectation);
        const { compares = true } = this.options;
        if (compares && !this.#hasFailed) requireSame(this.harness, answer, expected);
        return answer;
      } catch (mismatch) {
        throw this.#failed(mismatch);
      }
    };
  }

  /** Returns the error of a wrong answer, after which all inputs are shrinking steps of the failed input. */
  #failed<E>(error: E): E {
    this.#hasFailed = true;
    return error;
  }
}

/**
 * Throws `MismatchError` if the bits of an answer are wrong. Its tensors have the right names, types and shapes. The law adds the
 * details.
 */
function requireSame({ assertSame }: Harness, answer: Answer, expected: Answer): void {
  for (const [name, expectedTensor] of Object.entries(expected)) {
    const actual = answer[name];
    if (actual) assertSame(name, actual, expectedTensor);
  }
}

const text = (value: unknown): string => (typeof value === "string" ? value : shownJson(value));

function helloOf({ fields }: Reply, { OPERATION_NAMES }: Harness): Hello {
  const { protocol, name, operations } = fields;
  if (protocol !== PROTOCOL)
    throw new ArgumentError(
      `the subject says protocol ${describe(protocol)}; this version speaks ${PROTOCOL}: {"protocol": ${PROTOCOL}, "name": …, "operations": {"quantize": {}}}`,
    );
  if (!isObject(operations) || Object.keys(operations).length === 0)
    throw new ArgumentError(
      `the subject's operations are ${shownJson(operations)}; it must name at least one: {"quantize": {}}`,
    );
  const named = Object.entries(operations).map(([operation, supported]) => {
    const operationName = OPERATION_NAMES.find((each) => each === operation);
    if (!operationName)
      throw new ArgumentError(
        `the subject has an operation ${shownJson(operation)}; there are ${OPERATION_NAMES.join(", ")}`,
      );
    return [operationName, supportOf(operation, supported)] as const;
  });
  return { name: typeof name === "string" ? name : "the subject", operations: new Map(named) };
}
