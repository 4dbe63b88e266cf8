/** Which tensors of one call may share memory: none with what is written, but for what an operation writes in place. */
import type { GemmOperand } from "../backends/gemm-args.js";
import type { OpName } from "../backends/ops.js";
import { TENSOR_ROWS, type TensorRow } from "../backends/writes.js";
import { ArgumentError } from "../errors.js";
import { type QuantizedCopy, QuantizedTensor } from "../tensor/quantized.js";
import { isOverlap } from "../tensor/storage.js";
import { Tensor } from "../tensor/tensor.js";

/** An argument that has memory: a tensor, or what several make up. */
type Argument = Tensor | QuantizedTensor | QuantizedCopy | Omit<GemmOperand, "traits">;

/** What a caller calls the operation, and those arguments that have other names with it. */
type Names = Readonly<Record<string, string>>;

/** The tensors of the call that is looked at, written anew by each. */
const tensors: Tensor[] = [];
const rowsOfTensors: TensorRow[] = [];
const begins: number[] = [];
const ends: number[] = [];
let count = 0;

/**
 * Throws `ArgumentError` where a tensor that `op` writes shares memory with another of `given`, its arguments by name. Where
 * the operation works in place, its result may be exactly the tensor that it is read from: the same elements of one type.
 */
export function requireApart(op: OpName, given: object, names: Names = {}): void {
  const rows = TENSOR_ROWS.get(op) as readonly TensorRow[];
  const args = given as Readonly<Record<string, Argument | undefined>>;
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
  if (argument instanceof Tensor) add(row, argument);
  else if (argument instanceof QuantizedTensor) for (const member of argument.members) add(row, member);
  else {
    add(row, argument.data);
    if ("scaleInv" in argument) add(row, argument.scaleInv);
    if (argument.amax) add(row, argument.amax);
    if ("tensorScale" in argument && argument.tensorScale) add(row, argument.tensorScale);
    if ("blockScales" in argument && argument.blockScales) add(row, argument.blockScales.tensor);
  }
}

function add(row: TensorRow, x: Tensor): void {
  const { address } = x;
  tensors[count] = x;
  rowsOfTensors[count] = row;
  begins[count] = address;
  ends[count] = address + x.byteLength;
  count++;
}

function requireInPlace(op: OpName, i: number, j: number, names: Names): void {
  const [one, other] = [rowsOfTensors[i] as TensorRow, rowsOfTensors[j] as TensorRow];
  const mayBe = one.name === "out" && other.inPlace;
  if (mayBe && isSameMemory(tensors[i] as Tensor, tensors[j] as Tensor)) return;
  const [user, name, second] = [op, one.name, other.name].map((each) => names[each] ?? each);
  throw new ArgumentError(
    mayBe
      ? `${user}: ${name} shares memory with ${second} and is not that tensor, element for element; give that one or another`
      : `${user}: ${name} shares memory with ${second}, and is written while that is used; give another tensor`,
  );
}

/** Whether two tensors are the same elements of the same type. */
function isSameMemory(x: Tensor, y: Tensor): boolean {
  return x.address === y.address && x.dtype === y.dtype && x.byteLength === y.byteLength;
}
