/** The type of a law, a property of one operation, and the function that checks it over drawn inputs. */
import * as fc from "fast-check";
import { ArgumentError, messageOf, UnsupportedError } from "../../src/errors.js";
import type { Counterexample } from "../counterexamples/counterexample.js";
import type { OperationName, Subject } from "../operations/operations.js";
import { runCount } from "./run-options.js";

/** The inputs that a check draws. `path`, from an earlier failure, replays its counterexample. */
export interface CheckOptions {
  /** The number of inputs to draw, from 1. */
  readonly runs: number;
  /** An integer of 32 bits; the same seed draws the same inputs. */
  readonly seed: number;
  /** The `path` of an earlier failure under that seed, to replay it. Default: draw new inputs. */
  readonly path?: string | undefined;
  /** Called after each run. */
  readonly onRun?: (() => void) | undefined;
}

/** An input for which a law does not hold, after shrinking. */
export interface Failure {
  /** The input, as fast-check prints it. */
  readonly counterexample: string;
  /** What is wrong with the result. */
  readonly message: string;
  /** The seed that drew it. */
  readonly seed: number;
  /** The position of the counterexample under that seed, for `replay`. */
  readonly path: string;
  /** The number of successful shrinking steps. */
  readonly shrinks: number;
  /** The input itself, plain data. */
  readonly input: unknown;
  /**
   * The readable failure: simplified, explained, and with the name of the mistake. Only for laws that compare with the reference.
   */
  readonly found?: Counterexample | undefined;
}

/** The outcome of one check. */
export interface CheckResult {
  /** The number of inputs that ran; declined inputs are not counted. */
  readonly runs: number;
  /** The inputs that the subject does not support: each reason with its count. */
  readonly declined: readonly { readonly reason: string; readonly count: number }[];
  /** Absent if the law held. */
  readonly failure?: Failure | undefined;
  /** Notes on the reference itself if the subject uses few specs: blocks of zeros that are 0 / 0. */
  readonly notes?: readonly string[];
}

/** The outcome of one law. */
export interface LawReport extends CheckResult {
  /** The law's name. */
  readonly law: string;
  /** The operation that it is about. */
  readonly operation: OperationName;
}

/** A property of one operation that every correct implementation has. */
export interface Law {
  /** The property as a sentence. */
  readonly name: string;
  /** The operation that the law tests. */
  readonly operation: OperationName;
  /** Whether the law compares with the reference. */
  readonly compares: boolean;
  /**
   * Draws inputs and checks the law on `subject`. If the law fails, the result has the failure; the promise does not reject.
   * Rejects with `ArgumentError` for invalid options.
   */
  check(subject: Subject, reference: Subject, options: CheckOptions): Promise<CheckResult>;
}

/** Throws if `input` breaks the law. */
type Holds<C> = (subject: Subject, input: C, reference: Subject) => Promise<void>;

/** Creates a law over the inputs of `arbitrary`. */
export function law<C>(
  fields: Pick<Law, "name" | "operation"> & { readonly compares?: boolean },
  arbitrary: fc.Arbitrary<C>,
  holds: Holds<C>,
): Law {
  return {
    compares: false,
    ...fields,
    check: (subject, reference, options) =>
      check((input) => holds(subject, input, reference), arbitrary, options),
  };
}

async function check<C>(
  holds: (input: C) => Promise<void>,
  arbitrary: fc.Arbitrary<C>,
  options: CheckOptions,
): Promise<CheckResult> {
  runCount("check", "runs", options.runs);
  const declined = new Map<string, number>();
  const decline = (error: UnsupportedError): void => {
    declined.set(error.message, (declined.get(error.message) ?? 0) + 1);
  };
  const property = fc.asyncProperty(arbitrary, async (input) => {
    options.onRun?.();
    try {
      await holds(input);
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      decline(error);
    }
  });
  const { runs: numRuns, seed, path } = options;
  const details = await replayable(options, () =>
    fc.check(property, { numRuns, seed, endOnFailure: false, ...(path ? { path } : {}) }),
  );
  const reasons = Array.from(declined, ([reason, count]) => ({ reason, count }));
  const runs = details.numRuns - reasons.reduce((sum, { count }) => sum + count, 0);
  return { runs, declined: reasons, failure: details.failed ? failureOf(details) : undefined };
}

/** Runs `body`. Turns fast-check's error for a path that does not exist into an `ArgumentError`. */
async function replayable<T>({ path, seed }: CheckOptions, body: () => T | Promise<T>): Promise<T> {
  try {
    return await body();
  } catch (error) {
    if (!(error instanceof Error && error.message.startsWith("Unable to replay"))) throw error;
    throw new ArgumentError(
      `path ${path} leads to no input under seed ${seed}; give the law, seed and path that a failure printed`,
      { cause: error },
    );
  }
}

function failureOf<C>(details: fc.RunDetails<[C]>): Failure {
  const { counterexample, counterexamplePath, errorInstance, seed, numShrinks } = details;
  return {
    counterexample: fc.stringify(counterexample?.[0]),
    message: messageOf(errorInstance),
    seed,
    path: counterexamplePath ?? "",
    shrinks: numShrinks,
    input: counterexample?.[0],
  };
}
