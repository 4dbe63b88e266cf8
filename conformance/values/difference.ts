/** Bitwise comparison, and what a person needs to know where it fails. */
import { needed, optionsOf, text } from "../../src/options.js";
import { dtypeOf } from "../../src/tensor/require.js";
import {
  DTYPES,
  type DType,
  elementCount,
  ownShape,
  type Shape,
  storageBits,
} from "../../src/tensor/shape.js";
import type { TensorData } from "../../src/tensor/tensor.js";
import { codeValue, nanIsClass, PlainTensor, plainTensor } from "./plain.js";

/** Where two tensors differ first, and in how many elements. */
export interface Difference {
  /** In how many elements they differ. */
  readonly count: number;
  /** Elements in all. */
  readonly total: number;
  /** Where they differ first, an index for each dimension. */
  readonly coordinate: readonly number[];
  /** The element there, as code and value. */
  readonly actual: { readonly code: number; readonly value: number };
  /** What it has to be, as code and value. */
  readonly expected: { readonly code: number; readonly value: number };
}

/** Thrown where a result is not the one it has to be. */
export class MismatchError extends Error {
  /** The name of the class. */
  override readonly name = "MismatchError";

  constructor(
    message: string,
    /** Where and how much. Undefined where types or shapes differ already. */
    readonly difference?: Difference,
  ) {
    super(message);
  }
}

/**
 * The difference of two tensors of one type and shape: none where all codes agree, NaN as a class in wide types. Throws
 * `ArgumentError` for what is no tensor.
 */
export function differenceOf(actual: PlainTensor, expected: PlainTensor): Difference | undefined {
  plainTensor("differenceOf", "actual", actual);
  plainTensor("differenceOf", "expected", expected);
  const { dtype, shape } = expected;
  const [ours, theirs] = [actual.codes, expected.codes];
  const value = (code: number): number => codeValue(dtype, code);
  const tolerateNan = nanIsClass(dtype);
  let first = -1;
  let count = 0;
  for (let i = 0; i < theirs.length; i++) {
    const [a, b] = [ours[i] as number, theirs[i] as number];
    if (a === b || (tolerateNan && Number.isNaN(value(a)) && Number.isNaN(value(b)))) continue;
    if (count++ === 0) first = i;
  }
  if (count === 0) return undefined;
  const at = (codes: typeof ours) => ({ code: codes[first] as number, value: value(codes[first] as number) });
  return {
    count,
    total: theirs.length,
    coordinate: coordinateOf(first, shape),
    actual: at(ours),
    expected: at(theirs),
  };
}

/** What the data given are, and what to call them in a message. */
export interface BitsOf {
  /** The element type of both arrays. */
  readonly dtype: DType;
  /** The shape of both arrays. */
  readonly shape: Shape;
  /** What messages call them. Default `result`. */
  readonly name?: string;
}

const checkBitsOf = optionsOf<BitsOf>({
  dtype: needed(dtypeOf(DTYPES)),
  shape: needed((_user, _name, shape) => ownShape(shape as Shape)),
  name: text,
});

/**
 * Throws `MismatchError` unless two arrays of a tensor's data (as `Tensor.data()` gives them) hold the same
 * bits: with the number of differences, the first coordinate, both codes and both values. Throws
 * `ArgumentError`, `DTypeError` or `ShapeError` for what are no such data.
 */
export function assertSameBits<D extends DType>(
  actual: TensorData<D>,
  expected: TensorData<D>,
  of: BitsOf & { readonly dtype: D },
): void {
  const { dtype, shape, name = "result" } = checkBitsOf("assertSameBits", of);
  assertSame(name, new PlainTensor(dtype, shape, actual), new PlainTensor(dtype, shape, expected));
}

/**
 * As `assertSameBits`, for whole tensors: types and shapes have to agree as well.
 *
 * @throws `ArgumentError` for what is no plain tensor.
 */
export function assertSame(name: string, actual: PlainTensor, expected: PlainTensor): void {
  text("assertSame", "name", name);
  plainTensor("assertSame", "actual", actual);
  plainTensor("assertSame", "expected", expected);
  const kind = (x: PlainTensor): string => `${x.dtype} [${x.shape}] of ${x.data.byteLength} bytes`;
  if (kind(actual) !== kind(expected)) {
    throw new MismatchError(`${name} is ${kind(actual)}; it has to be ${kind(expected)}`);
  }
  const difference = differenceOf(actual, expected);
  if (difference)
    throw new MismatchError(`${name}: ${describeDifference(difference, expected.dtype)}`, difference);
}

/** One line: how many, where, what there is and what there has to be. */
function describeDifference(
  { count, total, coordinate, actual, expected }: Difference,
  dtype: DType,
): string {
  const show = ({ code, value }: Difference["actual"]): string =>
    `0x${code.toString(16).padStart(storageBits(dtype) / 4, "0")} (${Object.is(value, -0) ? "-0" : value})`;
  const where = coordinate.length > 0 ? ` at [${coordinate}]` : "";
  return `${count} of ${total} elements differ, first${where}: ${show(actual)}, expected ${show(expected)}`;
}

function coordinateOf(index: number, shape: Shape): number[] {
  return shape.map((size, axis) => Math.floor(index / elementCount(shape.slice(axis + 1))) % size);
}
