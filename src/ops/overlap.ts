/** Checks that the outputs of an operation share no memory with its other arguments, unless the operation may run in place. */
import type { GemmOperand } from "../backends/ops/gemm.js";
import type { OpName } from "../backends/ops.js";
import { TENSOR_ROWS, type TensorRow } from "../backends/writes.js";
import { ArgumentError } from "../errors.js";
import { type CopyTensors, DIRECTIONS, isQuantized, type QuantizedTensor } from "../tensor/quantized.js";
import type { DType } from "../tensor/shape.js";
import { isOverlap } from "../tensor/storage.js";
import { isTensor, type Tensor } from "../tensor/tensor.js";

/** An argument that occupies memory: a tensor, or an object of several tensors. */
type Argument = Tensor | QuantizedTensor | CopyTensors | Omit<GemmOperand, "traits">;

/** The names by which error messages call the operation and its arguments, if they differ from the internal ones. */
type Names = Readonly<Record<string, string>>;

/**
 * The tensors of the current call, one index each in the five arrays. The arrays are reused by every call and hold no
 * references to tensors.
 */
const rowsOfTensors: TensorRow[] = [];
/** The field name of each tensor within its argument, or "" if the argument is a tensor itself. */
const parts: string[] = [];
const dtypes: DType[] = [];
const begins: number[] = [];
const ends: number[] = [];
let count = 0;

/**
 * Throws `ArgumentError` if an output of `op` shares memory with another argument. `callArgs` holds the arguments by name. If the
 * operation may run in place, the output may be the input itself: the same memory with the same dtype.
 */
export function requireApart(op: OpName, callArgs: object, names: Names = {}): void {
  const rows = TENSOR_ROWS.get(op) as readonly TensorRow[];
  const args = callArgs as Readonly<Record<string, Argument | undefined>>;
  count = 0;
  let written = 0;
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] as TensorRow;
    const each = args[row.name];
    if (each !== undefined) addAll(row, each);
    if (row.written) written = count;
  }
  for (let i = 0; i < written; i++) {
    const [begin, end] = [begins[i] as number, ends[i] as number];
    for (let j = i + 1; j < count; j++) {
      if (isOverlap(begin, end, begins[j] as number, ends[j] as number)) requireInPlace(op, i, j, names);
    }
  }
}

function addAll(row: TensorRow, argument: Argument): void {
  if (isTensor(argument)) add(row, argument);
  else if (row.rule === "copy") addCopy(row, argument as CopyTensors);
  else if (isQuantized(argument))
    for (const direction of DIRECTIONS) {
      const copy = argument[direction];
      if (copy) addCopy(row, copy, `${direction}.`);
    }
  else if ("scaleInv" in argument) addCopy(row, argument);
  else {
    add(row, argument.data, "data");
    if (argument.amax) add(row, argument.amax, "amax");
    if (argument.lineAmaxes) add(row, argument.lineAmaxes, "lineAmaxes");
    if (argument.tensorScale) add(row, argument.tensorScale, "tensorScale");
    if (argument.blockScales) add(row, argument.blockScales.tensor, "blockScales");
    if (argument.lineScales) add(row, argument.lineScales, "lineScales");
  }
}

function addCopy(row: TensorRow, { data, scaleInv, amax }: CopyTensors, prefix = ""): void {
  add(row, data, `${prefix}data`);
  add(row, scaleInv, `${prefix}scaleInv`);
  if (amax) add(row, amax, `${prefix}amax`);
}

function add(row: TensorRow, x: Tensor, part = ""): void {
  const { address } = x;
  rowsOfTensors[count] = row;
  parts[count] = part;
  dtypes[count] = x.dtype;
  begins[count] = address;
  ends[count] = address + x.byteLength;
  count++;
}

function requireInPlace(op: OpName, i: number, j: number, names: Names): void {
  const [one, other] = [rowsOfTensors[i] as TensorRow, rowsOfTensors[j] as TensorRow];
  const mayBe = one.name === "out" && other.inPlace;
  if (mayBe && isSameMemory(i, j)) return;
  const caller = names[op] ?? op;
  const [name, second] = [i, j].map((index) => nameOf(index, names));
  throw new ArgumentError(
    mayBe
      ? `${caller}: ${name} shares memory with ${second} and is not that tensor, element for element; give that one or another`
      : `${caller}: ${name} shares memory with ${second}, and is written while that is used; give another tensor`,
  );
}

function nameOf(index: number, names: Names): string {
  const { name } = rowsOfTensors[index] as TensorRow;
  return [names[name] ?? name, parts[index]].filter((each) => each !== "").join(".");
}

/** Whether two tensors occupy the same bytes with the same dtype. */
function isSameMemory(i: number, j: number): boolean {
  return begins[i] === begins[j] && ends[i] === ends[j] && dtypes[i] === dtypes[j];
}
