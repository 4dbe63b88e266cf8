/** Bitwise comparison of tensors, and a report of the first difference. */
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
import { codeValue, nanIsClass, PlainTensor, plainTensor, requireKind } from "./plain.js";

/** The first difference of two tensors, and the number of differences. */
export interface Difference {
  /** The number of elements that differ. */
  readonly count: number;
  /** The number of elements. */
  readonly total: number;
  /** The index of the first difference, one number per dimension. */
  readonly coordinate: readonly number[];
  /** The actual element there, as code and value. */
  readonly actual: { readonly code: number; readonly value: number };
  /** The expected element there, as code and value. */
  readonly expected: { readonly code: number; readonly value: number };
}

/** Thrown if a result differs from the expected one. */
export class MismatchError extends Error {
  /** The name of the class. */
  override readonly name = "MismatchError";

  constructor(
    message: string,
    /** The first difference, and the number of differences. Undefined if types or shapes differ. */
    readonly difference?: Difference,
  ) {
    super(message);
  }
}

/**
 * The difference of two tensors of the same type and shape. Undefined if all codes are equal; in wide types all NaNs
 * are equal. Throws `ArgumentError` if an argument is not a plain tensor.
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

/** The type and shape of data to compare, and a name for messages. */
export interface BitsOf {
  /** The element type of both arrays. */
  readonly dtype: DType;
  /** The shape of both arrays. */
  readonly shape: Shape;
  /** The name in messages. Default `result`. */
  readonly name?: string;
}

const checkBitsOf = optionsOf<BitsOf>(
  {
    dtype: needed(dtypeOf(DTYPES)),
    shape: needed((_user, _name, shape) => ownShape(shape as Shape)),
    name: text,
  },
  "of",
);

/**
 * Compares the data of two tensors (as `Tensor.data()` returns them) bit by bit. Throws `MismatchError` if they differ,
 * with the number of differences, the first coordinate, both codes and both values. Throws `ArgumentError`,
 * `DTypeError` or `ShapeError` for invalid arguments.
 */
export function assertSameBits<D extends DType>(
  actual: TensorData<D>,
  expected: TensorData<D>,
  of: BitsOf & { readonly dtype: D },
): void {
  const { dtype, shape, name = "result" } = checkBitsOf("assertSameBits", of);
  requireKind("assertSameBits", "actual", dtype, actual);
  requireKind("assertSameBits", "expected", dtype, expected);
  assertSame(name, new PlainTensor(dtype, shape, actual), new PlainTensor(dtype, shape, expected));
}

/**
 * As `assertSameBits`, for whole tensors: types and shapes must be equal too.
 *
 * @throws `ArgumentError` if an argument is not a plain tensor.
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

/** One line: how many elements differ, where the first is, and its actual and expected values. */
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
