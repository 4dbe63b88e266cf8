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

/**
 * The memory that the calls of a list write and read. The arrays are reused by every list and hold no references to tensors: the
 * address of each tensor, and its end.
 */
class ListMemory {
  #outputs = new Float64Array(64);
  #outputEnd = 0;
  #inputs = new Float64Array(64);
  #inputEnd = 0;
  /** The outputs of the list that was sorted last, which a training step repeats. */
  #sorted = new Float64Array(0);
  #begins = new Float64Array(0);
  #ends = new Float64Array(0);
  #areDisjoint = true;

  /** Begins a new list. */
  clear(): void {
    this.#outputEnd = 0;
    this.#inputEnd = 0;
  }

  /** Adds a tensor that a call writes. Throws `DisposedError` if it is disposed. */
  addOutput(x: Tensor): void {
    const { address } = x;
    if (this.#outputEnd === this.#outputs.length) this.#outputs = doubled(this.#outputs);
    this.#outputs[this.#outputEnd++] = address;
    this.#outputs[this.#outputEnd++] = address + x.byteLength;
  }

  /** Adds a tensor that a call only reads. Throws `DisposedError` if it is disposed. */
  addInput(x: Tensor): void {
    const { address } = x;
    if (this.#inputEnd === this.#inputs.length) this.#inputs = doubled(this.#inputs);
    this.#inputs[this.#inputEnd++] = address;
    this.#inputs[this.#inputEnd++] = address + x.byteLength;
  }

  /** Whether no output shares memory with another tensor of the list. */
  areApart(): boolean {
    this.#sort();
    if (!this.#areDisjoint) return false;
    for (let i = 0; i < this.#inputEnd; i += 2) {
      if (this.#overlapsOutput(this.#inputs[i] as number, this.#inputs[i + 1] as number)) return false;
    }
    return true;
  }

  #sort(): void {
    const [outputs, sorted] = [this.#outputs, this.#sorted];
    let same = 0;
    if (sorted.length === this.#outputEnd)
      while (same < sorted.length && sorted[same] === outputs[same]) same++;
    if (same === this.#outputEnd && same === sorted.length) return;
    this.#sorted = outputs.slice(0, this.#outputEnd);
    // an empty tensor shares no memory
    const isUsed = (i: number): boolean => this.#sorted[i & ~1] !== this.#sorted[i | 1];
    this.#begins = this.#sorted.filter((_, i) => i % 2 === 0 && isUsed(i)).sort();
    // the ends of disjoint ranges have the order of their addresses
    this.#ends = this.#sorted.filter((_, i) => i % 2 === 1 && isUsed(i)).sort();
    this.#areDisjoint = this.#begins.every((begin, i) => i === 0 || (this.#ends[i - 1] as number) <= begin);
  }

  #overlapsOutput(begin: number, end: number): boolean {
    const ends = this.#ends;
    let first = 0;
    let last = ends.length;
    while (first < last) {
      const middle = (first + last) >> 1;
      if ((ends[middle] as number) <= begin) first = middle + 1;
      else last = middle;
    }
    return first < ends.length && (this.#begins[first] as number) < end && begin < end;
  }
}

const doubled = (numbers: Float64Array<ArrayBuffer>): Float64Array<ArrayBuffer> => {
  const copy = new Float64Array(2 * numbers.length);
  copy.set(numbers);
  return copy;
};

/** The memory of the list that is checked now. */
export const listMemory = new ListMemory();

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
