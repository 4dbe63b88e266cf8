/**
 * The inputs that TransformerEngine received, generated as in scripts/witness/te_draws.py: bit patterns, computed with integers
 * only.
 */
import { elementCount, type Shape, type WideDType } from "../../../../src/tensor/shape.js";

export type DrawKind = "bell" | "small" | "wide" | "edges" | "signs";

/** Bit patterns of f32; the upper half of each is the bf16 pattern. */
const SPECIALS = [
  0x00000000, 0x80000000, 0x00010000, 0x807f0000, 0x00800000, 0x7f7f0000, 0xff7f0000, 0x3f800000, 0x7f800000,
  0xff800000, 0x7fc00000,
];
const HALF_SPECIALS = [
  0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x3c00, 0x7c00, 0xfc00, 0x7e00,
];
/** The index of the largest finite value, followed by infinity and NaN. */
const LARGEST = 5;
const INFINITY = 8;
const NAN = 10;
const TILE = 128;

/** The murmur3 finalizer of seed + i * 0x9e3779b9. */
function wordAt(seed: number, i: number): number {
  let x = (seed + Math.imul(i, 0x9e3779b9)) >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

function f32Bits(value: number): number {
  float[0] = value;
  return bits[0] as number;
}

/** Rounds to bf16, ties to even. The input is never NaN. */
function toBf16(pattern: number): number {
  return (pattern + 0x7fff + ((pattern >>> 16) & 1)) >>> 16;
}

/** The f16 pattern of a value with at most ten significant bits that is not an f16 subnormal. */
function toF16(pattern: number): number {
  const magnitude = pattern & 0x7fffffff;
  if (magnitude === 0) return pattern >>> 16;
  return ((pattern >>> 31) << 15) | ((magnitude >>> 13) - ((127 - 15) << 10));
}

/** The sum of the four bytes of a word, centred and divided by 128: approximately normal with deviation 1.15. */
function normalBits(word: number, factor: number, dtype: WideDType): number {
  const sum = (word & 0xff) + ((word >>> 8) & 0xff) + ((word >>> 16) & 0xff) + (word >>> 24) - 510;
  const pattern = f32Bits((sum / 128) * factor);
  return dtype === "f32" ? pattern : dtype === "bf16" ? toBf16(pattern) : toF16(pattern);
}

/** Random signs, significands and exponents in sixteen binades around 1. */
function wideBits(word: number, dtype: WideDType): number {
  const [binade, sign] = [(word >>> 8) & 15, word >>> 31];
  if (dtype === "f16") return (sign << 15) | ((binade + 7) << 10) | ((word >>> 16) & 0x3ff);
  const high = (sign << 15) | ((binade + 119) << 7) | ((word >>> 16) & 0x7f);
  if (dtype === "bf16") return high;
  return ((high << 16) | (Math.imul(word, 0x85ebca6b) >>> 16)) >>> 0;
}

/** Arbitrary bit patterns; special values among ordinary ones; and 128x128 tiles with values of one kind. */
function edgeBits(word: number, dtype: WideDType, row: number, column: number): number {
  const isHalf = dtype === "f16";
  const specialBits = (i: number): number => {
    const specials = isHalf ? HALF_SPECIALS : SPECIALS;
    const pattern = specials[i] as number;
    return dtype === "bf16" ? pattern >>> 16 : pattern;
  };
  const sign = dtype === "f32" ? (word >>> 31) * 2 ** 31 : (word >>> 31) << 15;
  switch (((row >>> 7) * 5 + (column >>> 7) * 3) % 8) {
    case 1:
      return sign;
    case 2:
      return specialBits(NAN);
    case 4:
      return sign + (word & 3);
    case 5:
      return sign + specialBits(LARGEST);
    case 7:
      return row % TILE === 0 && column % TILE === 0 ? specialBits(INFINITY) : wideBits(word, dtype);
  }
  const kind = word & 7;
  if (kind === 0) return specialBits((word >>> 3) % SPECIALS.length);
  if (kind > 2) return wideBits(word, dtype);
  const mixedBits = Math.imul(word, 0x9e3779b1) >>> 0;
  return dtype === "f32" ? mixedBits : mixedBits >>> 16;
}

/** Rows with equal numbers of +2^k and -2^k: their mean is 0 and their norm is exact. */
function signedBits(rowWord: number, dtype: WideDType, column: number): number {
  let selectedBits = column & 15 & (1 + ((rowWord >>> 4) % 15));
  let parity = 0;
  for (; selectedBits > 0; selectedBits &= selectedBits - 1) parity ^= 1;
  const pattern = parity * 2 ** 31 + ((125 + (rowWord % 5)) << 23);
  return dtype === "f32" ? pattern : pattern >>> 16;
}

/** The bit patterns of a tensor of `shape`, row-major, in the form of `Tensor.data()`. */
export function draw(
  kind: DrawKind,
  dtype: WideDType,
  seed: number,
  shape: Shape,
): Uint16Array | Float32Array {
  const count = elementCount(shape);
  const columns = shape.at(-1) ?? 1;
  const elementBits = (i: number): number => {
    const word = wordAt(seed, i);
    const column = i % columns;
    switch (kind) {
      case "bell":
        return normalBits(word, 1, dtype);
      case "small":
        return normalBits(word, 1 / 16, dtype);
      case "wide":
        return wideBits(word, dtype);
      case "edges":
        return edgeBits(word, dtype, (i - column) / columns, column);
      case "signs":
        return signedBits(wordAt(seed, i - column), dtype, column);
    }
  };
  if (dtype !== "f32") return Uint16Array.from({ length: count }, (_, i) => elementBits(i));
  return new Float32Array(Uint32Array.from({ length: count }, (_, i) => elementBits(i)).buffer);
}
