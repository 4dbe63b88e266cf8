/** Turns a failing input into a counterexample for people: simple, explained, and with the name of the mistake. */
import { LockstepError, messageOf, UnsupportedError } from "../../src/errors.js";
import type { WideDType } from "../../src/tensor/shape.js";
import type { Answer } from "../operations/operation.js";
import type { Cases, OperationName } from "../operations/operations.js";
import { MismatchError } from "../values/difference.js";
import type { PlainTensor } from "../values/plain.js";
import { confirmed, sameAnswer } from "./diagnose.js";
import { explained } from "./explain.js";
import { shrunk } from "./shrink/shrink.js";
import { mapWide } from "./suspects/inputs.js";
import type { Evidence, Right } from "./suspects/suspect.js";
import { inputText } from "./text.js";

/** A counterexample for people. */
export interface Counterexample<K extends OperationName = OperationName> {
  /** The operation that fails. */
  readonly operation: K;
  /** The simplest failing input: few blocks, most elements zero, the others simple. */
  readonly input: Cases[K];
  /** The input of the preceding call, if the answer depends on earlier calls. */
  readonly before?: Cases[K];
  /** The input as a string. */
  readonly text: string;
  /** What is wrong with the answer. */
  readonly message: string;
  /** The expected answer. */
  readonly expected: Answer;
  /** The subject's answer. Absent if it gave none. */
  readonly actual?: Answer;
  /**
   * The subject's mistakes in words. Each explains every bit of all answers. Several if the answers do not distinguish them; none
   * if no known mistake fits.
   */
  readonly mistakes: readonly string[];
  /**
   * If no known mistake fits: facts about the wrong bits, and mistakes that explain a part of them, with the size of that part.
   * These are not causes. Empty if there are mistakes.
   */
  readonly observations: readonly string[];
  /** Lines that explain the first element that differs. */
  readonly explanation: readonly string[];
}

/** One failing case, and the means to ask for more. */
export interface Question<K extends OperationName> {
  readonly operation: K;
  /** An input that fails. */
  readonly input: Cases[K];
  readonly subject: (input: Cases[K]) => Answer | Promise<Answer>;
  readonly reference: (input: Cases[K]) => Answer | Promise<Answer>;
  /** Throws `MismatchError` unless both are the same. */
  readonly assertSame: (actual: Answer, expected: Answer) => void;
  /** Other inputs, whose answers distinguish mistakes. */
  readonly probes: readonly Cases[K][];
  /** Whether the subject accepts an input; absent if only the drawn inputs are known to be accepted. */
  readonly allows?: ((input: Cases[K]) => boolean) | undefined;
}

/** The outcome of one question. */
interface Outcome {
  readonly expected: Answer;
  readonly actual?: Answer;
  readonly error?: unknown;
}

/** The number of other inputs to ask. */
const PROBES = 32;
/** The number of further inputs to ask once mistakes are named, which must explain these too. */
const FURTHER = 64;

/** Simplifies a failing input, explains it, and names the mistake. Undefined if the failure does not repeat. */
export async function counterexampleOf<K extends OperationName>(
  question: Question<K>,
): Promise<Counterexample<K> | undefined> {
  const { operation, input, probes, allows } = question;
  const ask = (each: Cases[K]) => outcomeOf(question, each);
  const first = await ask(input);
  const history = await stateOf(question, first);
  const isSame = history?.before === undefined;
  const kind = kindOf((history?.outcome ?? first).error);
  if (kind === undefined) return undefined;
  const run = async (each: Cases[K]): Promise<Outcome> => {
    const before = isSame ? undefined : priorOf(each);
    if (before) await ask(before);
    return ask(each);
  };
  const fails = async (inputCase: Cases[K]): Promise<boolean> =>
    (allows?.(inputCase) ?? true) && kindOf((await quiet(() => run(inputCase)))?.error) === kind;
  const simple = await shrunk(operation, input, fails, { keepsShape: !allows, isCostly: kind !== MISMATCH });
  const last = await run(simple);
  const isStill = kindOf(last.error) === kind;
  const failing = isStill ? simple : input;
  const outcome = isStill ? last : await run(input);
  if (outcome.error === undefined) return undefined;
  const { expected, actual, error } = outcome;
  const evidence: Evidence<Cases[K]>[] = actual ? [{ input: failing, actual, expected }] : [];
  if (actual && !history)
    for (const each of [input, ...probes.slice(0, PROBES)]) {
      const other = await quiet(() => ask(each));
      if (other?.actual) evidence.push({ input: each, actual: other.actual, expected: other.expected });
    }
  const right: Right<K> = async (each) => question.reference(each);
  const before = isSame ? undefined : priorOf(failing);
  const further = async function* (): AsyncGenerator<Evidence<Cases[K]>> {
    for (const each of probes.slice(PROBES, PROBES + FURTHER)) {
      const other = await quiet(() => ask(each));
      if (other?.actual) yield { input: each, actual: other.actual, expected: other.expected };
    }
  };
  const naming =
    history || !actual ? undefined : await quiet(() => confirmed(operation, evidence, right, further()));
  const mistakes = history?.words ?? naming?.mistakes.map(({ words }) => words) ?? [];
  const [shown] = evidence;
  return {
    operation,
    input: failing,
    ...(before ? { before } : {}),
    text: inputText(failing),
    message: messageOf(error),
    expected,
    ...(actual ? { actual } : {}),
    mistakes,
    observations: naming?.observations ?? [],
    explanation: (shown && (await quiet(() => explained(operation, shown)))) ?? [],
  };
}

const MISMATCH = "MismatchError";

/** The class of a failure. Undefined without a failure, and if the subject declines the input. */
function kindOf(error: unknown): string | undefined {
  if (error === undefined || error instanceof UnsupportedError) return undefined;
  return error instanceof Error ? error.constructor.name : typeof error;
}

async function outcomeOf<K extends OperationName>(
  { subject, reference, assertSame }: Question<K>,
  input: Cases[K],
): Promise<Outcome> {
  const expected = await reference(input);
  let actual: Answer | undefined;
  try {
    actual = await subject(input);
    assertSame(actual, expected);
    return { expected, actual };
  } catch (error) {
    return { expected, error, ...(actual && error instanceof MismatchError ? { actual } : {}) };
  }
}

/** The result, or undefined for an input that is invalid for the operation, such as a shape that blocks do not divide. */
async function quiet<T>(body: () => Promise<T>): Promise<T | undefined> {
  try {
    return await body();
  } catch (error) {
    if (error instanceof LockstepError || error instanceof RangeError) return undefined;
    throw error;
  }
}

/** An input of the same shape with other values, for a preceding call. Undefined if the operation has no wide input. */
function priorOf<C>(input: C): C | undefined {
  const { x } = Object(input) as { readonly x?: PlainTensor<WideDType> };
  if (!x || !["f32", "bf16", "f16"].includes(x.dtype)) return undefined;
  return { ...input, x: mapWide(x, (value) => (Number.isFinite(value) ? value * 0 + 64 : 64)) };
}

interface State {
  readonly words: readonly string[];
  readonly outcome: Outcome;
  readonly before?: true;
}

/** How the answers depend on earlier calls, or vary without a reason. Undefined for a pure function. */
async function stateOf<K extends OperationName>(
  question: Question<K>,
  first: Outcome,
): Promise<State | undefined> {
  const { input, operation } = question;
  const again = await outcomeOf(question, input);
  const third = await outcomeOf(question, input);
  if (again.actual && third.actual && !sameAnswer(again.actual, third.actual))
    return {
      words: ["two answers to the same input differ: a race, or memory that is not initialized"],
      outcome: again.error === undefined ? third : again,
    };
  const prior = priorOf(input);
  if (!prior) return undefined;
  const before = await quiet(() => outcomeOf(question, prior));
  if (!before) return undefined;
  const after = await outcomeOf(question, input);
  const isSame = !after.actual || !third.actual || sameAnswer(after.actual, third.actual);
  if (isSame && (first.error !== undefined || after.error === undefined)) return undefined;
  const stale = staleOf(after, before);
  const words =
    operation === "quantize" && stale
      ? `stale ${stale}: those of the call before`
      : "the answer depends on calls before it: something is kept that has to be computed again";
  return { words: [words], outcome: after.error === undefined ? first : after, before: true };
}

/** The tensors of an answer that equal the expected ones of the preceding input. */
function staleOf({ actual, expected }: Outcome, before: Outcome): string | undefined {
  const same = (suffix: string) =>
    actual &&
    Object.keys(expected)
      .filter((name) => name.endsWith(suffix))
      .some((name) => {
        const [actualCodes, old, right] = [
          actual[name]?.codes,
          before.expected[name]?.codes,
          expected[name]?.codes,
        ];
        return (
          actualCodes &&
          old &&
          right &&
          String(actualCodes) === String(old) &&
          String(actualCodes) !== String(right)
        );
      });
  if (same(".scaleInv")) return "scales";
  if (same("amax")) return "amax of the tensor";
  return same(".data") ? "codes" : undefined;
}
