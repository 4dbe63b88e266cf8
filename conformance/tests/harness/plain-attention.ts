/** Softmax attention in f64, and tasks with every feature of attention that are compared with it. */
import { DATAPATHS } from "../../../src/formats/datapath.js";
import { type HeadTask, isDropped, isVisible, keepFactor } from "../../oracle/attention/scores.js";
import { roundedIn } from "../../oracle/core/scale.js";
import { derivedSeed } from "./draws.js";

export const HALF = DATAPATHS["hopper-half"].dotAdd;

export const PLAIN_TASK = {
  ...{ rule: "fp32", type: "f32", scale: 1, blockKeys: 16, splitKeys: 0 },
  ...{ align: "end", causal: false, window: [-1, -1] },
} as const satisfies Partial<HeadTask>;

/** Uniform numbers from -1 to 1, reproducible. */
export function uniform(seed: number): () => number {
  let state = BigInt.asUintN(32, BigInt(seed));
  return () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & ((1n << 64n) - 1n);
    return Number(state >> 40n) / 2 ** 23 - 1;
  };
}

export function matrix(
  draw: () => number,
  [rows, columns]: readonly [number, number],
  type: HeadTask["type"],
): number[][] {
  return Array.from({ length: rows }, () =>
    Array.from({ length: columns }, () => roundedIn(Math.fround(draw()), type)),
  );
}

/** Whether dropout drops each pair of a query and a key. */
export function droppedPairs(task: HeadTask): boolean[][] {
  return task.q.map((_, i) => task.k.map((__, j) => isDropped(task, i, j)));
}

/** Softmax attention in f64. */
export function plainAttention(
  task: HeadTask,
  isDroppedPair = droppedPairs(task),
): { out: number[][]; lse: number[]; p: number[][] } {
  const { q, k, v, scale, softcap, bias, slope, sink, align } = task;
  const keep = keepFactor(task);
  const rows = q.map((query, i) => {
    const scores = k.map((key, j) => {
      if (!isVisible(task, i, j)) return Number.NEGATIVE_INFINITY;
      const dot = query.reduce((sum, x, d) => sum + x * key[d]!, 0);
      let u = (dot + (bias && task.biasBeforeScale ? bias(i, j) : 0)) * scale;
      if (softcap !== undefined) u = softcap * Math.tanh(u / softcap);
      if (bias && !task.biasBeforeScale) u += bias(i, j);
      return u - (slope ?? 0) * Math.abs(i + (align === "end" ? k.length - q.length : 0) - j);
    });
    const total = [...scores, sink ?? Number.NEGATIVE_INFINITY].reduce((sum, u) => sum + Math.exp(u), 0);
    const p = scores.map((u) => Math.exp(u) / total);
    const out = v[0]!.map((_, d) =>
      p.reduce((sum, probability, j) => sum + (isDroppedPair[i]![j] ? 0 : probability * keep * v[j]![d]!), 0),
    );
    return { out, lse: Math.log(total), p };
  });
  return { out: rows.map((row) => row.out), lse: rows.map((row) => row.lse), p: rows.map((row) => row.p) };
}

export interface Features {
  readonly name: string;
  readonly task: Partial<HeadTask>;
}

const biasValue = (i: number, j: number): number => Math.fround(Math.sin(3 * i + 5 * j));
const dropout = { probability: 0.25, seed: 7n, offset: 3n, head: 2n };

export const FEATURES: readonly Features[] = [
  { name: "plain", task: {} },
  { name: "causal, two splits", task: { causal: true, splitKeys: 16 } },
  { name: "window, align start", task: { window: [5, 2], align: "start" } },
  { name: "mask, sink", task: { masked: (i, j) => (i + j) % 3 === 0, sink: 0.5 } },
  { name: "bias", task: { bias: biasValue } },
  { name: "bias before the scale", task: { bias: biasValue, biasBeforeScale: true } },
  { name: "softcap, slope", task: { softcap: 1.5, slope: 0.125, causal: true } },
  { name: "softcap, bias", task: { softcap: 1.5, bias: biasValue } },
  { name: "softcap, bias before the scale", task: { softcap: 1.5, bias: biasValue, biasBeforeScale: true } },
  { name: "dropout", task: { dropout } },
  {
    name: "all",
    task: { softcap: 2, bias: biasValue, slope: 0.25, sink: -1, dropout, causal: true, splitKeys: 16 },
  },
];

export const TYPES = [
  { type: "f32", rule: "fp32", unit: 0 },
  { type: "bf16", rule: HALF, unit: 2 ** -8 },
  { type: "f16", rule: HALF, unit: 2 ** -11 },
] as const;

/** A bound on the error of sums of 40 numbers that are rounded to f16 subnormals. */
export const SUBNORMAL_BOUND = 2 ** -19;

/**
 * A bound on the relative error of a probability due to roundings to f32, for products of width 24 whose magnitudes sum to less
 * than 12, and for 40 keys. 48 roundings of 2^-24 · 12 in a score give 2^-14.8. Exponents, ex2 and the sum of 40 probabilities
 * add less than 2^-16.
 */
const F32_BOUND = 2 ** -14;

/** The relative error of tanh is below 2^-10.9, and the softcap multiplies it. */
export const relativeTolerance = (task: HeadTask): number => F32_BOUND + (task.softcap ?? 0) * 2 ** -10.9;

export function createTask(
  { type, rule }: (typeof TYPES)[number],
  features: Partial<HeadTask>,
  { keys = 37, queries = 9, width = 24, seed = 1 } = {},
): HeadTask {
  const draw = uniform(derivedSeed(seed));
  return {
    ...{ ...PLAIN_TASK, type, rule, scale: Math.fround(1 / Math.sqrt(width)) },
    q: matrix(() => 2 * draw(), [queries, width], type),
    k: matrix(() => 2 * draw(), [keys, width], type),
    v: matrix(draw, [keys, 5], type),
    ...features,
  };
}
