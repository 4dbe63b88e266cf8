/** Compares two recorded runs of one program by the digests of their outputs. */
import { sameShape } from "../tensor/shape.js";
import { haveEqualDigests } from "./digest.js";
import type { RecordedOperation, TensorReference } from "./run.js";
import { findRow } from "./table.js";

/** The differences between two runs. */
export interface RunComparison {
  /** The number of operations whose outputs were compared. */
  readonly compared: number;
  /** The number of operations whose outputs differ. */
  readonly different: number;
  /** The first operation that differs, and a description of the difference. Absent if the runs agree. */
  readonly first?: { readonly index: number; readonly schema: string; readonly what: string };
}

/**
 * Describes the difference of one operation in a phrase. Returns "" if all compared outputs are equal, undefined if no output was
 * compared.
 */
function describeDifference(a: RecordedOperation, b: RecordedOperation): string | undefined {
  if (a.outputs.length !== b.outputs.length) return `${a.outputs.length} outputs against ${b.outputs.length}`;
  const { unwritten = 0 } = findRow(a.schema)?.row ?? {};
  let result: string | undefined;
  for (const [i, x] of a.outputs.entries()) {
    const y = b.outputs[i] as TensorReference;
    const [description, otherDescription] = [x, y].map(({ dtype, shape }) => `${dtype} [${shape}]`) as [
      string,
      string,
    ];
    if (x.dtype !== y.dtype || !sameShape(x.shape, y.shape))
      return `output ${i} is ${description} against ${otherDescription}`;
    if (i >= a.outputs.length - unwritten) continue;
    const isEqual = haveEqualDigests(x, y);
    if (isEqual === false) return `output ${i}, ${description}, has other bytes`;
    if (isEqual) result = "";
  }
  return result;
}

/**
 * Compares runs operation by operation, up to the first operation with different operators. NaNs with different bits differ,
 * because a digest covers the bytes.
 */
export function compareRuns(a: readonly RecordedOperation[], b: readonly RecordedOperation[]): RunComparison {
  let [compared, different] = [0, 0];
  let first: RunComparison["first"];
  for (const [index, x] of a.entries()) {
    const y = b[index];
    const { schema } = x;
    const hasOtherSchema = y?.schema !== schema;
    const difference = hasOtherSchema
      ? `the other run has ${y?.schema ?? "no further operation"}`
      : describeDifference(x, y);
    if (difference !== undefined) compared++;
    if (!difference) continue;
    different++;
    first ??= { index, schema, what: difference };
    if (hasOtherSchema) return { compared, different, first };
  }
  const nextOperation = b[a.length];
  if (nextOperation && !first) {
    different++;
    first = { index: a.length, schema: nextOperation.schema, what: "only the other run has it" };
  }
  return { compared, different, ...(first && { first }) };
}
