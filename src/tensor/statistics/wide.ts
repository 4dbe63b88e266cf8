/** Pairs of elements without a table: integers of 32 and 64 bits, f64 and c64. */
import { type ElementType, f32Rank } from "./elements.js";

/** Two elements: their codes, the values, and the number of codes between them. */
interface Pair {
  readonly codes: readonly [bigint, bigint];
  readonly values: readonly [number, number];
  readonly ulp: number;
  readonly areBothNaN: boolean;
}

/** Returns the pair of elements `i`. */
export type WidePair = (i: number) => Pair;

const F64_MAGNITUDE = 0x7fffffffffffffffn;

function f64Rank(code: bigint): bigint {
  const magnitude = code & F64_MAGNITUDE;
  return code > F64_MAGNITUDE ? -magnitude : magnitude;
}

function distance(a: bigint, b: bigint): number {
  return Number(a > b ? a - b : b - a);
}

/** Returns the pairs of two chunks of bytes. */
export function widePair(type: ElementType, a: Uint8Array, b: Uint8Array): WidePair {
  const [x, y] = [viewOf(a), viewOf(b)];
  switch (type) {
    case "f64":
      return (i) => {
        const codes = [x.getBigUint64(i * 8, true), y.getBigUint64(i * 8, true)] as const;
        const values = [x.getFloat64(i * 8, true), y.getFloat64(i * 8, true)] as const;
        const ulp = distance(f64Rank(codes[0]), f64Rank(codes[1]));
        return { codes, values, ulp, areBothNaN: values.every(Number.isNaN) };
      };
    case "c64":
      return (i) => complexPair(x, y, i * 8);
    default:
      return (i) => integerPair(type, x, y, i);
  }
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

/**
 * Complex numbers: the distance is the larger of the distances of the real and the imaginary parts. The values are |a| and |a| +
 * |b - a|, whose difference is the error.
 */
function complexPair(x: DataView, y: DataView, offset: number): Pair {
  const parts = [offset, offset + 4].map((offset) => {
    const [p, q] = [x.getFloat32(offset, true), y.getFloat32(offset, true)];
    const areNaN = Number.isNaN(p) && Number.isNaN(q);
    const ulp = areNaN ? 0 : Math.abs(f32Rank(x.getInt32(offset, true)) - f32Rank(y.getInt32(offset, true)));
    return { p, q, ulp, size: areNaN ? 0 : p, error: Object.is(p, q) ? 0 : q - p };
  });
  const size = Math.hypot(...parts.map((part) => part.size));
  const error = Math.hypot(...parts.map((part) => part.error));
  const sameParts = parts.every(({ p, q }) => Object.is(p, q));
  return {
    codes: [x.getBigUint64(offset, true), y.getBigUint64(offset, true)],
    values: [size, size + error],
    ulp: Math.max(...parts.map(({ ulp }) => ulp)),
    areBothNaN: sameParts,
  };
}

function integerPair(type: ElementType, x: DataView, y: DataView, i: number): Pair {
  const read = (view: DataView): bigint => {
    if (type === "i64" || type === "u64") return view.getBigUint64(i * 8, true);
    return BigInt(view.getUint32(i * 4, true));
  };
  const codes = [read(x), read(y)] as const;
  const bits = type === "i64" || type === "u64" ? 64 : 32;
  const [p, q] = codes.map((code) => (type.startsWith("i") ? BigInt.asIntN(bits, code) : code)) as [
    bigint,
    bigint,
  ];
  return { codes, values: [Number(p), Number(q)], ulp: distance(p, q), areBothNaN: false };
}
