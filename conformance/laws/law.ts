/** A law: a sentence over inputs that nobody chose, and the running of it. */
import * as fc from "fast-check";
import { ArgumentError, UnsupportedError } from "../../src/errors.js";
import type { OperationName, Subject } from "../operations/operations.js";
import { runCount } from "./run-options.js";

/** Which inputs a check draws. `path`, from an earlier failure, replays its counterexample. */
export interface CheckOptions {
  /** Inputs to draw, from 1. */
  readonly runs: number;
  /** An integer of 32 bits; the same seed draws the same inputs. */
  readonly seed: number;
  /** The path of a failure under that seed. Default: all inputs. */
  readonly path?: string | undefined;
  /** Called after each run. */
  readonly onRun?: (() => void) | undefined;
}

/** An input for which a law does not hold, as small as shrinking made it. */
export interface Failure {
  /** The input, as fast-check prints it. */
  readonly counterexample: string;
  /** What was wrong with the result. */
  readonly message: string;
  /** The seed that drew it. */
  readonly seed: number;
  /** The way to it under that seed, for `replay`. */
  readonly path: string;
  /** How often it was made smaller. */
  readonly shrinks: number;
}

/** What one check came to. */
export interface CheckResult {
  /** Runs that computed; those declined are not among them. */
  readonly runs: number;
  /** Inputs that the subject said it does not take, by reason, with their number. */
  readonly declined: readonly { readonly reason: string; readonly count: number }[];
  /** Absent where the law held. */
  readonly failure?: Failure | undefined;
}

/** A sentence about one operation that holds for every subject that does that operation right. */
export interface Law {
  /** The sentence. */
  readonly name: string;
  /** The operation that it is about. */
  readonly operation: OperationName;
  /** Whether the law needs the reference to say what is right. */
  readonly compares: boolean;
  /**
   * Draws inputs, and holds the subject to the law. Does not reject where the law fails: the result has the failure. Rejects
   * with `ArgumentError` for options outside their domains.
   */
  check(subject: Subject, reference: Subject, options: CheckOptions): Promise<CheckResult>;
}

/** Throws where `input` breaks the law. */
type Holds<C> = (subject: Subject, input: C, reference: Subject) => Promise<void>;

/** A law over inputs of `arbitrary`. */
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

/** Runs `body`; throws `ArgumentError` in the place of fast-check's error for a path that its inputs do not have. */
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
    message: errorInstance instanceof Error ? errorInstance.message : String(errorInstance),
    seed,
    path: counterexamplePath ?? "",
    shrinks: numShrinks,
  };
}
