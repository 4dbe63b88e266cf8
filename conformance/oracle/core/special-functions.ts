/** ex2 and tanh of the special-function unit (numerics.md §7.11), on f32 values. All integers here are below 2^53. */
import { EX2, type Quadratic, TANH } from "./special-function-tables.gen.js";

const word = new DataView(new ArrayBuffer(4));

/** The sign, the biased exponent and the fraction of an f32 value. */
function fieldsOf(x: number): readonly [isNegative: boolean, exponent: number, fraction: number] {
  word.setFloat32(0, x);
  const bits = word.getUint32(0);
  return [bits >= 2 ** 31, (bits >>> 23) & 0xff, bits & 0x7fffff];
}

/** The square of y in units of 2^19, built from truncated partial products. */
function sq(y: number): number {
  let sum = 0;
  for (let i = 0; i <= 16; i++) if ((y >> i) & 1) sum += y >> (18 - i);
  return sum >> 1;
}

/** The function T of §7.11 for a table. */
function quadraticOf({ xBits, sqShift, rows, bias, ...shifts }: Quadratic): (a: number) => number {
  const unit0 = 2 ** shifts.c0Shift;
  const unit1 = 2 ** shifts.c1Shift;
  const unit2 = 2 ** shifts.c2Shift;
  return (a) => {
    const row = a >> xBits;
    const y = a & (2 ** xBits - 1);
    return (
      (rows.c0[row] as number) * unit0 +
      (rows.c1[row] as number) * y * unit1 +
      (rows.c2[row] as number) * sq(y << sqShift) * unit2 +
      bias
    );
  };
}

const quadraticOfEx2 = quadraticOf(EX2);

/** The binades of tanh by biased exponent, each with its function T. */
const BINADES = new Map(
  TANH.map(({ exponent, dropped, fractionBits, ...table }) => [
    exponent,
    { dropped, unit: 2 ** -fractionBits, quadratic: quadraticOf(table) },
  ]),
);

/** 2^x, as ex2.approx.ftz.f32 computes it. */
export function ex2(x: number): number {
  if (Number.isNaN(x)) return Number.NaN;
  const [isNegative, exponent, fraction] = fieldsOf(x);
  if (exponent >= 134) return isNegative ? 0 : Number.POSITIVE_INFINITY;
  const significand = exponent === 0 ? 0 : 2 ** 23 + fraction;
  const v = Math.floor(significand * 2 ** (exponent - 127));
  let n = v >> 23;
  let a = v % 2 ** 23;
  if (isNegative) {
    n = a === 0 ? -n : -n - 1;
    a = a === 0 ? 0 : 2 ** 23 - 1 - a;
  }
  const z = Math.floor(quadraticOfEx2(a) / 2 ** 15);
  const result = z * 2 ** (n - 23);
  if (result < 2 ** -126) return 0;
  return result < 2 ** 128 ? result : Number.POSITIVE_INFINITY;
}

/** A number from 0 to 1, truncated to the significand of an f32. */
function truncated(x: number): number {
  const nearest = Math.fround(x);
  if (nearest <= x) return nearest;
  word.setFloat32(0, nearest);
  word.setUint32(0, word.getUint32(0) - 1);
  return word.getFloat32(0);
}

/** tanh x, as tanh.approx.f32 computes it. */
export function tanh(x: number): number {
  if (Number.isNaN(x)) return Number.NaN;
  const [isNegative, exponent, fraction] = fieldsOf(x);
  if (exponent <= 118) return x;
  const sign = isNegative ? -1 : 1;
  if (exponent >= 130) return sign;
  const { dropped, unit, quadratic } = BINADES.get(exponent)!;
  return sign * truncated(quadratic(fraction >> dropped) * unit);
}
