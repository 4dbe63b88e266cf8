/** Runs the laws for `lockstep conform`: on a backend, or on a program that answers cases. */
import type { Answer, ConformanceOptions, ConformanceReport, Subject } from "lockstep/conformance";
import type { Backend } from "../../backends/backend.js";
import { LockstepError, UnsupportedError } from "../../errors.js";
import type { Session } from "../session.js";
import type { StoredCase } from "../subject/counterexample-file.js";
import type { Harness } from "../subject/harness.js";
import { Parent, SubjectProcess } from "../subject/process.js";
import { ProgramSubject, withCache } from "../subject/subject.js";
import { notesOf } from "../subject/support.js";
import { type Peer, SubjectError } from "../subject/talk.js";
import { jsonOf, PARENT } from "./conform-report.js";

/** A report, and the name of the tested backend or program. */
export interface Tested {
  readonly report: ConformanceReport;
  readonly name: string;
  /** Descriptions of inputs that were not drawn and of results that were not compared. */
  readonly notes: readonly string[];
}

/** Options of the laws, and the input of --case. */
export type RunOptions = ConformanceOptions & { readonly stored?: StoredCase | undefined };

/** Tests a backend against its definition. */
export async function runOn(
  backend: Backend,
  harness: Harness,
  { stored, ...options }: RunOptions,
): Promise<Tested> {
  const lawOptions = stored ? await onlyStored(options, stored) : options;
  return { report: await harness.runConformance({ backend, ...lawOptions }), name: backend.name, notes: [] };
}

/** Options of a run whose only input is the stored input. */
async function onlyStored(
  options: ConformanceOptions,
  { operation, input }: StoredCase,
): Promise<ConformanceOptions> {
  const { constant } = await import("fast-check");
  return { ...options, operations: [operation], inputs: { [operation]: constant(input) }, comparing: true };
}

/**
 * Wraps a subject so that it gets the preceding input of the case (`before`) before each input. Some failures need both inputs.
 */
function withPrecedingInput(subject: Subject, { operation, before }: StoredCase): Subject {
  const ask = subject[operation];
  if (!before || !ask) return subject;
  const askPrecedingFirst = async (input: object): Promise<Answer> => {
    await ask(before as never);
    return ask(input as never);
  };
  return { ...subject, [operation]: askPrecedingFirst };
}

/** Compares a program with a backend. Draws only inputs that the program supports. */
export async function runOnProgram(
  backend: Backend,
  begin: () => Peer,
  harness: Harness,
  { deadline, stored, ...options }: RunOptions & { readonly deadline: number },
): Promise<Tested> {
  // each result is used twice: in the message to the program, and by the law
  const reference = withCache(harness.backendSubject(backend));
  const { program, hello, subject } = await ProgramSubject.start(begin, harness, { deadline, reference });
  try {
    const tested = Array.from(hello.operations).filter(
      ([name]) => options.operations?.includes(name) ?? true,
    );
    const supported = Object.fromEntries(tested.map(([name, { fields }]) => [name, fields]));
    const notes = tested.flatMap(([, support]) => notesOf(support));
    const report = stored
      ? await harness.compareWith(
          withPrecedingInput(subject, stored),
          reference,
          await onlyStored(options, stored),
        )
      : await harness.compareWith(subject, reference, { ...options, supported, comparing: true });
    requireChecked(report, hello.name);
    program.send({ type: "report", ...report, laws: report.laws.map(jsonOf), notes });
    return { report, name: hello.name, notes };
  } catch (error) {
    if (error instanceof LockstepError) program.send({ type: "report", error: error.message });
    throw error;
  } finally {
    program.dispose();
  }
}

/** Returns a function that starts the program or, for `-`, connects to the parent process. */
export function peerOf({ io }: Session, program: string): () => Peer {
  if (program !== PARENT) return () => new SubjectProcess(program);
  let parent: Parent | undefined;
  return () => {
    if (parent) throw new SubjectError("the subject is the parent process, which cannot be started again");
    parent = new Parent(io.binary);
    return parent;
  };
}

/** Throws `UnsupportedError` if a program declined all inputs of a law, because a run that checks nothing must not pass. */
function requireChecked({ laws }: ConformanceReport, name: string): void {
  for (const { operation, runs, failure, declined } of laws) {
    if (runs > 0 || failure) continue;
    throw new UnsupportedError(
      operation,
      `${name} declined every input, so nothing was checked: ${declined.map(({ reason }) => reason).join("; ")}; let it say in its hello what it supports`,
    );
  }
}
