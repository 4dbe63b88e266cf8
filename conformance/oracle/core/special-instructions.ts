/**
 * The approximate instructions of PTX as the chips compute them (numerics.md §7.11): the instructions of the special-function
 * unit, their forms without ftz, and their 16-bit forms. Arguments and results are values.
 */
import { cos, ex2, lg2, rcp, rsqrt, sin, sqrt, tanh } from "./special-functions.js";

const word = new DataView(new ArrayBuffer(4));

const LEAST_NORMAL = 2 ** -126;
const isSubnormal = (x: number): boolean => Math.abs(x) < LEAST_NORMAL;

/** The value truncated to f16. From 2^16 it is infinite. */
function f16(x: number): number {
  const magnitude = Math.abs(x);
  if (!(magnitude < 2 ** 16)) return Number.isNaN(x) ? x : Math.sign(x) * Number.POSITIVE_INFINITY;
  word.setFloat32(0, magnitude);
  const exponent = Math.max(-14, (word.getUint32(0) >>> 23) - 127);
  const unit = 2 ** (exponent - 10);
  return Math.trunc(x / unit) * unit;
}

/** The value truncated to bf16. */
function bf16(x: number): number {
  word.setFloat32(0, x);
  word.setUint16(2, 0);
  return Number.isNaN(x) ? x : word.getFloat32(0);
}

/** f without ftz: multiplies subnormal arguments by 2^24 before the call, and corrects the result for that factor. */
const scaled =
  (f: (x: number) => number, unscale: (y: number) => number) =>
  (x: number): number =>
    isSubnormal(x) ? Math.fround(unscale(f(x * 2 ** 24))) : f(x);

function fullRcp(x: number): number {
  const factor = isSubnormal(x) ? 2 ** 24 : Math.abs(x) > 2 ** 126 ? 2 ** -2 : 1;
  return Math.fround(factor * rcp(factor * x));
}

/** The instructions by their names in PTX. */
export const SPECIAL_INSTRUCTIONS = {
  "ex2.approx.ftz.f32": ex2,
  "ex2.approx.f32": (x) => (x < -126 ? Math.fround(ex2(x / 2) ** 2) : ex2(x)),
  "lg2.approx.ftz.f32": lg2,
  "lg2.approx.f32": scaled(lg2, (y) => y - 24),
  "rcp.approx.ftz.f32": rcp,
  "rcp.approx.f32": fullRcp,
  "rsqrt.approx.ftz.f32": rsqrt,
  "rsqrt.approx.f32": scaled(rsqrt, (y) => y * 2 ** 12),
  "sqrt.approx.ftz.f32": sqrt,
  "sqrt.approx.f32": scaled(sqrt, (y) => y / 2 ** 12),
  "sin.approx.ftz.f32": sin,
  "sin.approx.f32": sin,
  "cos.approx.ftz.f32": cos,
  "cos.approx.f32": cos,
  "tanh.approx.f32": tanh,
  "ex2.approx.f16": (x) => f16(ex2(x)),
  "tanh.approx.f16": (x) => f16(tanh(x)),
  "ex2.approx.ftz.bf16": (x) => bf16(ex2(x)),
  "tanh.approx.bf16": (x) => bf16(tanh(x)),
} as const satisfies Readonly<Record<string, (x: number) => number>>;
