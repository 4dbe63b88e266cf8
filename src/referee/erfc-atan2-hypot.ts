/** Models of log10f, erfcf, atan2f and hypotf of CUDA, as nvcc 13.0 compiles them without fast math. */
import type { Model } from "./call.js";
import { applyMath, fma, fromBits, LN2, LOG2E, polynomial, toBits } from "./float32.js";
import { computeValue, type Formula, mapElements } from "./pointwise.js";

const { abs, fround, max, min, sqrt, trunc } = Math;

const LOG10E = fround(Math.LOG10E);

/** logf(x) * log10 e. */
export const log10: Model = (call) =>
  computeValue(call, [call.tensor("self")], (x) =>
    mapElements((l) => l * LOG10E, applyMath(call.backend, "logf", x)),
  );

const ERFC_COEFFICIENTS = [
  0x3a69a091, 0x3be6e05b, 0xbc81fb4b, 0x3d15373b, 0xbd887c5a, 0x3dc021d5, 0xbdced424, 0x3d8b74de, 0x3c7bf170,
  0xbe0ef8d4, 0x3f9dd2c9,
].map(fromBits);
/** The part of ln 2 beyond f32. */
const LN2_REST = fromBits(0x3102e308);
/** erfcf is 0 for larger numbers. */
const MAX_ERFC = fromBits(0x4120e148);
const MAX_EXPONENT = 126;

/** The quotient (t - 4) / (t + 4), where r is about 1 / (t + 4). */
const erfcVariable: Formula = (t, r) => {
  const q = fround(fround(t - 4) * r);
  return fma(r, fma(-q, t, fma(-4, fround(q + 1), t)), q);
};

/** p / (2 t + 1), where p is the polynomial in w and s is about 1 / (2 t + 1). */
const erfcFactor: Formula = (w, t, s) => {
  const p = polynomial(w, ERFC_COEFFICIENTS);
  const q = fround(p * s);
  return fma(fround(fma(t, -2 * q, p) - q), s, q);
};

/** The integer part of -t^2 * log2 e, at least -126. */
function erfcExponent(t: number): number {
  return max(trunc(fround(fround(-t * t) * LOG2E)), -MAX_EXPONENT);
}

/** The argument of ex2 in e^(-t^2) = ex2(argument) * 2^erfcExponent(t). */
function erfcExponentRest(t: number): number {
  const n = erfcExponent(t);
  return fround(fma(n, LN2_REST, fma(n, -LN2, fround(-t * t))) * LOG2E);
}

/** The factor and e^(-t^2), which ex2 of the rest gives, corrected by the rounding error of t^2. */
const erfcOfMagnitude: Formula = (factor, t, ex2) => {
  if (t > MAX_ERFC) return 0;
  const power = fround(ex2 * 2 ** erfcExponent(t));
  return fround(factor * fma(power, fma(-t, t, fround(t * t)), power));
};

/**
 * erfcf. With t = |x|, m is e^(-t^2) / (2 t + 1), multiplied by a polynomial of degree 10 in (t - 4) / (t + 4). The result is m,
 * or 2 - m for negative x.
 */
export const erfc: Model = (call) => {
  const reciprocals = (values: Float32Array) => applyMath(call.backend, "rcp.approx.ftz.f32", values);
  return computeValue(call, [call.tensor("self")], (x) => {
    const t = mapElements(abs, x);
    const w = mapElements(erfcVariable, t, reciprocals(mapElements((v) => v + 4, t)));
    const factor = mapElements(erfcFactor, w, t, reciprocals(mapElements((v) => fma(2, v, 1), t)));
    const ex2 = applyMath(call.backend, "ex2.approx.ftz.f32", mapElements(erfcExponentRest, t));
    const result = mapElements(erfcOfMagnitude, factor, t, ex2);
    return mapElements((v, r) => (v < 0 ? 2 - r : r), x, result);
  });
};

const ATAN_COEFFICIENTS = [
  0x3b33710b, 0xbc807748, 0x3d2cdab2, 0xbd992d10, 0x3dd9ea6c, 0xbe117cb1, 0x3e4cbce0, 0xbeaaaa7d,
].map(fromBits);
/** Two factors of pi / 2 and of pi: their product is nearer to the number than an f32 number is. */
const PI_FACTOR = fromBits(0x3fd774eb);
const HALF_PI_FACTOR = fromBits(0x3f6ee581);
const WHOLE_PI_FACTOR = fromBits(0x3feee581);
const PI = fround(Math.PI);
const QUARTER_PI = fround(Math.PI / 4);
const THREE_QUARTERS_PI = fround(0.75 * Math.PI);

/** The magnitude of atan2f: a polynomial of degree 17 in the smaller magnitude divided by the larger one, and the octant. */
function angle(y: number, x: number): number {
  const [height, width] = [abs(y), abs(x)];
  const isLeft = toBits(x) < 0;
  const largerSide = max(height, width);
  if (largerSide === 0) return isLeft ? PI : 0;
  if (height === width) return isLeft ? THREE_QUARTERS_PI : QUARTER_PI;
  const q = fround(min(height, width) / largerSide);
  const square = fround(q * q);
  const a = fma(fround(square * polynomial(square, ATAN_COEFFICIENTS)), q, q);
  if (height > width) return fma(HALF_PI_FACTOR, PI_FACTOR, isLeft ? a : -a);
  return isLeft ? fma(WHOLE_PI_FACTOR, PI_FACTOR, -a) : a;
}

/** atan2f: the angle of the point (x, y), with the sign of y. */
export const atan2: Formula = (y, x) => {
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.NaN;
  return toBits(y) < 0 ? -angle(y, x) : angle(y, x);
};

const EXPONENT_MASK = -0x2000000;
const LOWEST_EXPONENT_BIT = 0x800000;
const SCALE_SUM = 0x7e800000;

/**
 * hypotf: both magnitudes are multiplied by one power of two. The root of the sum of their squares is multiplied by the inverse
 * of this power.
 */
export const hypot: Formula = (x, y) => {
  const [a, b] = [toBits(abs(x)), toBits(abs(y))];
  const [smallerMagnitude, largerMagnitude] = [fromBits(min(a, b)), fromBits(max(a, b))];
  if (smallerMagnitude === 0) return largerMagnitude;
  if (smallerMagnitude === Number.POSITIVE_INFINITY) return smallerMagnitude;
  const exponent = max(a, b) & EXPONENT_MASK;
  const scale = fromBits(SCALE_SUM - exponent);
  const [u, v] = [fround(smallerMagnitude * scale), fround(largerMagnitude * scale)];
  return fround(sqrt(fma(v, v, fround(u * u)))) * fromBits(exponent | LOWEST_EXPONENT_BIT);
};
