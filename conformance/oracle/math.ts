/**
 * The definition of the transcendental functions, operation by operation in f64, each rounded once to f32.
 * Coefficients ascend; they are those of assembly/math.ts, whose comments give their source.
 */
const { fround, abs } = Math;

const EXP2 = [
  1, 0.6931471805537159, 0.24022650922336714, 0.05550410928763957, 0.009618056670850868,
  0.0013333454539879229, 0.0001546144715432321, 0.000015310083034605573,
];
const LOG = [
  2.000000000008424, 0.6666666524045282, 0.4000038586907138, 0.2853498592734023, 0.23617465827985273,
];
const ERF = [
  1.1283791670580228, -0.3761263843465519, 0.1128378197417139, -0.026865400046064723, 0.005220945443949852,
  -0.000848282900783686, 0.00011256949087443147, -0.000009641519444046827,
];
const ERFC = [
  0.00027190249377500366, -1.6296399171935663, -0.9135381496434236, -0.1564200308171526, 0.03637083513310861,
  -0.006066944442217724, 0.0006369105825079576, -0.00003130305383943778,
];
const LOG2E = Math.LOG2E;
const LN2 = Math.LN2;

function horner(coefficients: readonly number[], x: number): number {
  return coefficients.reduceRight((sum, c) => sum * x + c);
}

/** 2^n by halves, for |n| <= 1024: 2^-1023 gives 0 here, as the exponent field 0 does in the reference. */
function powerOfTwo(n: number): number {
  return n === -1023 ? 0 : 2 ** Math.trunc(n / 2) * 2 ** (n - Math.trunc(n / 2));
}

/** x rounded to an integer, ties to odd: the reference rounds x + 1023 to even. */
function nearest(x: number): number {
  const below = Math.floor(x);
  const rest = x - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 0) ? below + 1 : below;
}

/** 2^t in f64. */
export function exp2(t: number): number {
  if (Number.isNaN(t)) return t;
  const bounded = Math.min(Math.max(t, -1023), 1024);
  const n = nearest(bounded);
  return horner(EXP2, bounded - n) * powerOfTwo(n);
}

export function exp(x: number): number {
  return fround(exp2(x * LOG2E));
}

export function sigmoid(x: number): number {
  return fround(1 / (1 + exp2(x * -LOG2E)));
}

export function log(x: number): number {
  if (!(x > 0) || x === Number.POSITIVE_INFINITY) return Math.log(x); // the special values only
  let n = 0;
  let m = x;
  for (; m >= Math.SQRT2; n++) m /= 2;
  for (; m < Math.SQRT1_2; n--) m *= 2;
  const s = (m - 1) / (m + 1);
  return fround(n * LN2 + s * horner(LOG, s * s));
}

export function tanh(x: number): number {
  const a = abs(x);
  if (a < 2 ** -10) return fround(x * (1 - a * a * (1 / 3)));
  const e = exp2(a * (-2 * LOG2E));
  return fround(Math.sign(x) * ((1 - e) / (1 + e)));
}

export function erf(x: number): number {
  const a = abs(x);
  if (a < 1) return fround(x * horner(ERF, a * a));
  return fround(Math.sign(x) * (1 - exp2(horner(ERFC, Math.min(a, 4)))));
}
