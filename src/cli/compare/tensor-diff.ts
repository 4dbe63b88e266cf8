/** Bitwise comparison of two tensors in two files. */
import { codeText, unpackCodes } from "../../io/codes.js";
import { compareType, FILE_DTYPES, type FileDType, fileBytes } from "../../io/dtypes.js";
import type { TensorEntry } from "../../io/header/header.js";
import type { TensorSource } from "../../io/source.js";
import { elementCount, type Shape, sameShape } from "../../tensor/shape.js";
import { DifferenceCount, type FirstDifference } from "../../tensor/statistics/difference-count.js";

/** The value and the code of an element, as strings. */
interface Side {
  readonly value: string;
  readonly code: string;
}

/** An element that differs. */
interface LocatedDifference {
  readonly index: number;
  readonly coordinate: readonly number[];
  readonly a: Side;
  readonly b: Side;
}

export interface TensorDiff {
  readonly name: string;
  readonly status: "equal" | "different" | "type" | "shape" | "onlyA" | "onlyB";
  readonly dtype: FileDType;
  readonly shape: Shape;
  readonly elements: number;
  /** The number of elements that differ. Two NaNs count as equal. */
  readonly different: number;
  /** The number of elements that are NaN in both tensors, but with different bits. */
  readonly nansOfOtherBits: number;
  /** The first element that differs, in row-major order. */
  readonly first?: LocatedDifference;
  /** The dtype and shape of the other tensor, if they differ. */
  readonly other?: { readonly dtype: FileDType; readonly shape: Shape };
}

/** The number of bytes to compare at a time: a multiple of 3 and of 8, so that every chunk starts at an element of any width. */
const CHUNK_BYTES = 3 << 20;

/** A tensor and its file. */
export interface SideFile {
  readonly file: TensorSource;
  readonly entry: TensorEntry;
}

/** Receives the bytes of two tensors of one dtype and shape while they are compared. */
export interface Follower {
  /** Called with each chunk of both tensors and the index of its first byte. The next chunk overwrites it. */
  readonly chunk: (a: Uint8Array, b: Uint8Array, offset: number) => void;
}

/** Describes a tensor that only one of the files has. */
export function onlyOn(status: "onlyA" | "onlyB", { name, dtype, shape }: TensorEntry): TensorDiff {
  const elements = elementCount(shape);
  return { name, status, dtype, shape, elements, different: elements, nansOfOtherBits: 0 };
}

/**
 * Compares two tensors. Tensors of different dtypes or shapes are not equal. `onBytes` is called with the number of bytes
 * compared since the last call.
 */
export async function diffTensors(
  a: SideFile,
  b: SideFile,
  onBytes: (count: number) => void,
  follower?: Follower,
): Promise<TensorDiff> {
  const { name, dtype, shape } = a.entry;
  const { dtype: otherType, shape: otherShape } = b.entry;
  const elements = elementCount(shape);
  const base = { name, dtype, shape, elements, nansOfOtherBits: 0 };
  if (dtype !== otherType || !sameShape(shape, otherShape)) {
    const status = dtype === otherType ? "shape" : "type";
    return { ...base, status, different: elements, other: { dtype: otherType, shape: otherShape } };
  }
  const counter = new DifferenceCount(compareType(dtype));
  const size = fileBytes(dtype, shape);
  const length = Math.min(size, CHUNK_BYTES);
  const chunks = [new Uint8Array(length), new Uint8Array(length)] as const;
  for (let offset = 0; offset < size; offset += CHUNK_BYTES) {
    const end = Math.min(size, offset + CHUNK_BYTES);
    const bytesA = chunks[0].subarray(0, end - offset);
    const bytesB = chunks[1].subarray(0, end - offset);
    await Promise.all([a.file.readInto(a.entry, offset, bytesA), b.file.readInto(b.entry, offset, bytesB)]);
    if (Buffer.compare(bytesA, bytesB) === 0) counter.skip((bytesA.length * 8) / FILE_DTYPES[dtype].bits);
    else counter.add(unpackCodes(dtype, bytesA), unpackCodes(dtype, bytesB));
    follower?.chunk(bytesA, bytesB, offset);
    onBytes(end - offset);
  }
  const { different, nansOfOtherBits, first } = counter;
  return {
    ...base,
    status: different > 0 ? "different" : "equal",
    different,
    nansOfOtherBits,
    ...(first ? { first: describeElement(dtype, shape, first) } : {}),
  };
}

function describeElement(
  dtype: FileDType,
  shape: Shape,
  { index, a, b }: FirstDifference,
): LocatedDifference {
  return {
    index,
    coordinate: coordinateOf(shape, index),
    a: codeText(dtype, a),
    b: codeText(dtype, b),
  };
}

/** The coordinate of the element with this index in row-major order. */
export function coordinateOf(shape: Shape, index: number): readonly number[] {
  const coordinate: number[] = [];
  let remainder = index;
  for (const size of shape.toReversed()) {
    coordinate.unshift(remainder % size);
    remainder = Math.floor(remainder / size);
  }
  return coordinate;
}
