/**
 * The tensors of each operation, as src/backends/ops declares them. Backends use the table to detect empty work; operations use
 * it to check dtypes and overlaps.
 */
import type { QuantizedCopy } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import type { OpArgs, OpName } from "./ops.js";
import { TENSORS } from "./tensors.gen.js";
import type { TensorRule } from "./tensors.js";

interface AnyRow {
  readonly writes: Readonly<Record<string, TensorRule>>;
  readonly reads: Readonly<Record<string, TensorRule>>;
  readonly inPlace?: readonly string[];
}

/** One tensor of an operation. */
export interface TensorRow {
  readonly name: string;
  readonly rule: TensorRule;
  readonly optional: boolean;
  readonly written: boolean;
  /** For an input: whether `out` may be the same memory. */
  readonly inPlace: boolean;
}

/** The tensors of every operation. Outputs come first. */
export const TENSOR_ROWS: ReadonlyMap<OpName, readonly TensorRow[]> = new Map(
  Object.entries(TENSORS).map(([op, { writes, reads, inPlace = [] }]: [string, AnyRow]) => [
    op as OpName,
    [...rowsOf(writes, true, []), ...rowsOf(reads, false, inPlace)],
  ]),
);

function rowsOf(
  rules: Readonly<Record<string, TensorRule>>,
  written: boolean,
  inPlace: readonly string[],
): readonly TensorRow[] {
  return Object.entries(rules).map(([key, rule]) => {
    const name = key.replace("?", "");
    return { name, rule, optional: key.endsWith("?"), written, inPlace: inPlace.includes(name) };
  });
}

/**
 * Whether all outputs of `op` are empty. Kernels are then not called: if one size is zero, another size may exceed their range.
 */
export function writesNothing<K extends OpName>(op: K, args: OpArgs[K]): boolean {
  const rows = TENSOR_ROWS.get(op) as readonly TensorRow[];
  const fields = args as object as Readonly<Record<string, unknown>>;
  for (let i = 0; i < rows.length; i++) {
    const { name, rule, written } = rows[i] as TensorRow;
    if (!written) break;
    const each = fields[name];
    if (each === undefined) continue;
    if (rule === "copy" ? !isEmptyCopy(each as QuantizedCopy) : (each as Tensor).byteLength > 0) return false;
  }
  return true;
}

function isEmptyCopy({ scaleInv, data, amax }: QuantizedCopy): boolean {
  return scaleInv.byteLength === 0 && data.byteLength === 0 && !amax?.byteLength;
}
