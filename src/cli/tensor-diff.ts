/** Bitwise comparison of two tensors in two files. */
import { Codes, partsOf } from "../io/codes.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../io/dtypes.js";
import type { TensorEntry } from "../io/header/header.js";
import type { TensorSource } from "../io/source.js";
import { elementCount, type Shape, sameShape } from "../tensor/shape.js";

/** The value and the code of an element, as text. */
interface Side {
  readonly value: string;
  readonly code: string;
}

/** The first element that differs, in row-major order. */
interface FirstDifference {
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
  /** The number of elements that are NaN in both tensors with different bits. */
  readonly nansOfOtherBits: number;
  readonly first?: FirstDifference;
  /** The dtype and shape of the other tensor, if they differ. */
  readonly other?: { readonly dtype: FileDType; readonly shape: Shape };
}

/**
 * The number of bytes compared at a time. It is a multiple of 3 and of 8, so that elements of every width begin at the start of
 * a chunk.
 */
const CHUNK_BYTES = 3 << 20;

interface SideFile {
  readonly file: TensorSource;
  readonly entry: TensorEntry;
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
): Promise<TensorDiff> {
  const { name, dtype, shape } = a.entry;
  const { dtype: otherType, shape: otherShape } = b.entry;
  const elements = elementCount(shape);
  const base = { name, dtype, shape, elements, nansOfOtherBits: 0 };
  if (dtype !== otherType || !sameShape(shape, otherShape)) {
    const status = dtype === otherType ? "shape" : "type";
    return { ...base, status, different: elements, other: { dtype: otherType, shape: otherShape } };
  }
  let different = 0;
  let nansOfOtherBits = 0;
  let first: FirstDifference | undefined;
  const size = fileBytes(dtype, shape);
  for (let at = 0; at < size; at += CHUNK_BYTES) {
    const end = Math.min(size, at + CHUNK_BYTES);
    const [bytesA, bytesB] = await Promise.all([
      a.file.read(a.entry, at, end),
      b.file.read(b.entry, at, end),
    ]);
    if (Buffer.compare(bytesA, bytesB) !== 0) {
      const found = diffCodes(dtype, bytesA, bytesB);
      const offset = (at * 8) / FILE_DTYPES[dtype].bits;
      first ??= found.first && locate(shape, offset + found.first.index, found.first);
      different += found.different;
      nansOfOtherBits += found.nansOfOtherBits;
    }
    onBytes(end - at);
  }
  const status = different > 0 ? "different" : "equal";
  return { ...base, status, different, nansOfOtherBits, ...(first ? { first } : {}) };
}

function locate(shape: Shape, index: number, found: FirstDifference): FirstDifference {
  const coordinate: number[] = [];
  let rest = index;
  for (const size of shape.toReversed()) {
    coordinate.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return { ...found, index, coordinate };
}

function diffCodes(
  dtype: FileDType,
  bytesA: Uint8Array,
  bytesB: Uint8Array,
): Pick<TensorDiff, "different" | "nansOfOtherBits" | "first"> {
  const [a, b] = [new Codes(dtype, bytesA), new Codes(dtype, bytesB)];
  const count = (bytesA.length * 8) / FILE_DTYPES[dtype].bits;
  let different = 0;
  let nansOfOtherBits = 0;
  let first: FirstDifference | undefined;
  for (let index = 0; index < count; index++) {
    const [x, y] = [a.at(index), b.at(index)];
    if (x === y) continue;
    if (sameNumbers(dtype, x, y)) nansOfOtherBits++;
    else {
      different++;
      first ??= { index, coordinate: [], a: sideOf(dtype, x), b: sideOf(dtype, y) };
    }
  }
  return { different, nansOfOtherBits, ...(first ? { first } : {}) };
}

/** Whether two different codes stand for the same number or are both NaN. */
function sameNumbers(dtype: FileDType, x: bigint, y: bigint): boolean {
  const others = partsOf(dtype, y);
  return partsOf(dtype, x).every((part, i) => Object.is(part, others[i]));
}

function sideOf(dtype: FileDType, code: bigint): Side {
  const digits = Math.ceil(FILE_DTYPES[dtype].bits / 4);
  const texts = partsOf(dtype, code).map((part) => (Object.is(part, -0) ? "-0" : String(part)));
  return { value: texts.join(" + i*"), code: `0x${code.toString(16).padStart(digits, "0")}` };
}
