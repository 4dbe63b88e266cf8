/** The options and the report of the witness. */
import { domain, integer, optionsOf, u64 } from "../../options.js";
import type { OpName } from "../ops.js";

/** An element of a result whose bits differ from the reference. */
export interface WitnessDifference {
  /** The name of the result, for example `out`. */
  readonly result: string;
  /** The row and the column of the element. In a batch of products, the number of the product comes first. */
  readonly index: readonly number[];
  /** The bits of the backend's result, in hexadecimal. */
  readonly actual: string;
  /** The bits of the reference's result, in hexadecimal. */
  readonly expected: string;
}

/** A call of an operation whose sampled elements differ from the reference. */
export interface WitnessFinding {
  /** The operation. */
  readonly operation: OpName;
  /** The number of the call among the calls of this operation on this backend, from 0. */
  readonly call: number;
  /** The shapes and dtypes of the tensors of the call, by argument. */
  readonly tensors: Readonly<Record<string, string>>;
  /** The number of elements that were compared. */
  readonly elements: number;
  /** The number of compared elements that differ. */
  readonly differing: number;
  /** The first elements that differ, at most 16. */
  readonly differences: readonly WitnessDifference[];
}

/** The counts of one operation. */
export interface WitnessCount {
  /** The number of calls. */
  readonly calls: number;
  /** The number of calls of which elements were compared. */
  readonly compared: number;
  /** The number of elements that were compared. */
  readonly elements: number;
  /** For the calls that were chosen but not compared: their number, by reason. */
  readonly skipped: Readonly<Record<string, number>>;
}

/** The report of a witness, as plain data. */
export interface WitnessReport {
  /** The seed that chose the elements. */
  readonly seed: bigint;
  /** The counts of each operation that ran. */
  readonly operations: Readonly<Partial<Record<OpName, WitnessCount>>>;
  /** The calls that differ from the reference, in order, at most 1,000. */
  readonly findings: readonly WitnessFinding[];
}

/** The witness of a backend. `witnessOf` returns it. */
export interface Witness {
  /**
   * Waits until all calls so far are compared.
   *
   * @throws `BackendError` if elements differ and `onMismatch` is `throw`, unless an operation has thrown it, and if a call could
   * not be compared.
   */
  settled(): Promise<void>;
  /** Returns the report of the comparisons so far. `settled` waits for the calls that are not compared yet. */
  report(): WitnessReport;
}

/**
 * What happens when sampled elements differ. `throw`: the next operation on the backend throws `BackendError`, or
 * `Witness.settled` does. `record`: the finding is only reported. A function is called with the finding; `settled` throws its
 * errors.
 */
export type OnMismatch = "throw" | "record" | ((finding: WitnessFinding) => void);

/** Options of the witness. All fields are optional. */
export interface WitnessOptions {
  /** The number of elements of a call that are compared, 1 to 1,000,000. Default 10,000. A product may have a few more. */
  readonly elements?: number | undefined;
  /** For each operation, the first call is compared, and then one call in every `every`. At least 1. Default 16. */
  readonly every?: number | undefined;
  /** What happens when elements differ. Default `throw`. */
  readonly onMismatch?: OnMismatch | undefined;
  /** The seed that chooses elements: runs with equal calls compare the same elements. Default 0n. */
  readonly seed?: bigint | undefined;
}

const onMismatch = domain(
  (value) => typeof value === "function" || value === "throw" || value === "record",
  '"throw", "record" or a function',
);

export const checkWitness = optionsOf<WitnessOptions>({
  elements: integer(1, 1e6),
  every: integer(1),
  onMismatch,
  seed: u64,
});
