/** Optimizer steps; every operation is exact and rounded once to f32. */
import {
  add,
  div,
  divide,
  F32,
  f32,
  mul,
  ofNumber,
  powerOfTwo,
  rational,
  sub,
  times,
} from "../core/rational.js";

/** The new state of one element: the parameter and the optimizer's state. */
export interface Stepped {
  readonly p: number;
  readonly m: number;
  readonly v: number;
}

interface Step {
  readonly g: number;
  readonly p: number;
  readonly m: number;
  readonly learningRate: number;
  readonly weightDecay: number;
}

export interface SgdStep extends Step {
  readonly momentum: number;
  readonly dampening: number;
  readonly nesterov: boolean;
  readonly first: boolean;
}

export interface AdamwStep extends Step {
  readonly v: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly eps: number;
  readonly decoupled: boolean;
  /** The number of the step, starting at 1. */
  readonly step: number;
}

const { fround } = Math;

/** One element of SGD. Options are those of the interface, not yet rounded; g is already multiplied by gradScale. */
export function sgd(options: SgdStep): Omit<Stepped, "v"> {
  const { g, p, m, first, nesterov } = options;
  const [rate, momentum, decay] = [options.learningRate, options.momentum, options.weightDecay].map(fround);
  const d = decay === 0 ? g : add(g, mul(decay!, p));
  if (momentum === 0) return { p: sub(p, mul(rate!, d)), m };
  const fresh = mul(fround(1 - options.dampening), d);
  const mean = first ? d : add(mul(momentum!, m), fresh);
  const direction = nesterov ? add(d, mul(momentum!, mean)) : mean;
  return { p: sub(p, mul(rate!, direction)), m: mean };
}

/** One element of AdamW. Options and g are as for `sgd`. */
export function adamw(options: AdamwStep): Stepped {
  const { p, decoupled, step } = options;
  const [rate, decay, eps] = [options.learningRate, options.weightDecay, options.eps].map(fround);
  const [beta1, beta2] = [fround(options.beta1), fround(options.beta2)];
  const g = decoupled ? options.g : add(options.g, mul(decay!, p));
  const m = add(mul(beta1, options.m), mul(sub(1, beta1), g));
  const v = add(mul(beta2, options.v), mul(mul(sub(1, beta2), g), g));
  const ratio = div(div(m, correction(beta1, step)), add(sqrt(div(v, correction(beta2, step))), eps!));
  const update = decoupled ? add(ratio, mul(decay!, p)) : ratio;
  return { p: sub(p, mul(rate!, update)), m, v };
}

/** 1 - beta^step in f64: the product of the powers beta^(2^k) for the set bits of `step`, from the lowest. */
export function correction(beta: number, step: number): number {
  const bits = [...step.toString(2)].reverse();
  const squares = bits.map((_, k) => Array.from({ length: k }).reduce((x: number) => x * x, beta));
  const power = squares.filter((_, k) => bits[k] === "1").reduce((product, x) => product * x, 1);
  return fround(1 - power);
}

/**
 * The square root in f32. It is computed as an integer root of more than 80 bits, with a sticky bit for the remainder.
 */
export function sqrt(x: number): number {
  if (!(x > 0) || x === Number.POSITIVE_INFINITY) return x === 0 || x > 0 ? x : Number.NaN;
  const shift = -2 * F32.minExponent;
  const scaled = divide(ofNumber(x), powerOfTwo(-2 * shift));
  const floorOfRatio = scaled.num / scaled.den;
  const root = integerRoot(floorOfRatio);
  const sticky = root * root === floorOfRatio && floorOfRatio * scaled.den === scaled.num ? 0n : 1n;
  return f32(times(rational(2n * root + sticky), powerOfTwo(-shift - 1)));
}

/** The largest integer whose square is at most n. */
function integerRoot(n: bigint): bigint {
  let root = 1n << BigInt(Math.ceil(n.toString(2).length / 2));
  for (;;) {
    const next = (root + n / root) / 2n;
    if (next >= root) return root;
    root = next;
  }
}
