/** Parts of both passes of attention: visible keys, scores, dropout, and sums by a datapath (numerics.md §10). */
import type { DotAdd } from "../../../src/formats/datapath.js";
import { constants } from "../core/math.js";
import { philox4x32 } from "../core/philox.js";
import { add, fma, mul } from "../core/rational.js";
import type { WideName } from "../core/scale.js";
import { tanh } from "../core/special-functions.js";
import { dotAddStep } from "../gemm/step.js";

const f = Math.fround;

/** Dropout of the probabilities of one head. */
export interface Dropout {
  readonly probability: number;
  readonly seed: bigint;
  readonly offset: bigint;
  /** b * H + h. */
  readonly head: bigint;
}

/** The attention of one sequence and one query head. All values are f32. */
export interface HeadTask {
  /** [Sq][D]. */
  readonly q: readonly (readonly number[])[];
  /** [Sk][D]. */
  readonly k: readonly (readonly number[])[];
  /** [Sk][V]. */
  readonly v: readonly (readonly number[])[];
  /** V. Required without keys, because `v` is then empty. */
  readonly valueWidth?: number | undefined;
  /** How products are summed: `fp32`, or a dot-add step. */
  readonly rule: "fp32" | DotAdd;
  /** The type of q, k, v and out. */
  readonly type: WideName;
  readonly scale: number;
  readonly blockKeys: number;
  /** 0: no splits. */
  readonly splitKeys: number;
  readonly align: "start" | "end";
  readonly causal: boolean;
  /** -1 is no bound. */
  readonly window: readonly [left: number, right: number];
  /** Whether the mask hides (i, j). */
  readonly masked?: ((i: number, j: number) => boolean) | undefined;
  readonly bias?: ((i: number, j: number) => number) | undefined;
  readonly biasBeforeScale?: boolean | undefined;
  readonly slope?: number | undefined;
  readonly softcap?: number | undefined;
  readonly sink?: number | undefined;
  readonly dropout?: Dropout | undefined;
}

const [LOG2E_F64, LN2_F64] = (["LOG2E", "LN2"] as const).map((name) => constants(name)[0]) as [
  number,
  number,
];

export const LOG2E = f(LOG2E_F64);
export const LN2 = f(LN2_F64);

/** The position t of query i. */
function queryPosition({ align, q, k }: HeadTask, i: number): number {
  return align === "end" ? i + k.length - q.length : i;
}

/** Whether key j is visible for query i. */
export function isVisible(task: HeadTask, i: number, j: number): boolean {
  const t = queryPosition(task, i);
  const [leftWindow, rightWindow] = task.window;
  if (task.causal && j > t) return false;
  if (leftWindow !== -1 && j < t - leftWindow) return false;
  if (rightWindow !== -1 && j > t + rightWindow) return false;
  return task.masked?.(i, j) !== true;
}

/** The two factors of a product; undefined for a pair that is not visible. */
export type Pair = readonly [a: number, b: number] | undefined;

/** A chain from an accumulator (datapath.md §5). */
export function chain({ rule, type }: HeadTask, accumulator: number, pairs: readonly Pair[]): number {
  let sum = accumulator;
  if (rule === "fp32") {
    for (const pair of pairs) if (pair) sum = add(sum, mul(...pair));
    return sum;
  }
  const minExponent = type === "f16" ? -14 : -126;
  for (let first = 0; first < pairs.length; first += rule.step) {
    const factors = pairs.slice(first, first + rule.step).map((pair) => pair ?? [0, 0]);
    const x = factors.map(([a]) => a);
    const w = factors.map(([, b]) => b);
    sum = dotAddStep({ rule, accumulator: sum, x, w, minExponent });
  }
  return sum;
}

/** The chain over two vectors, from zero. */
export function dot(task: HeadTask, x: readonly number[], w: readonly number[]): number {
  return chain(
    task,
    0,
    x.map((a, d) => [a, w[d]!]),
  );
}

/** Whether z already includes the scale. */
export function isScaled({ softcap, slope, bias, biasBeforeScale }: HeadTask): boolean {
  return softcap !== undefined || slope !== undefined || (bias !== undefined && biasBeforeScale !== true);
}

/** The factor c: z ⊗ c is the score as an exponent of two. */
export function exponentFactor(task: HeadTask): number {
  return isScaled(task) ? LOG2E : f(task.scale * LOG2E_F64);
}

export interface Score {
  readonly z: number;
  /** The value of tanh; undefined without softcap. */
  readonly h: number | undefined;
}

/** The score of a visible pair. */
export function computeScore(task: HeadTask, i: number, j: number): Score {
  const { q, k, bias, softcap, slope } = task;
  let s = dot(task, q[i]!, k[j]!);
  if (bias && task.biasBeforeScale) s = add(s, bias(i, j));
  if (!isScaled(task)) return { z: s, h: undefined };
  let u = mul(s, task.scale);
  let h: number | undefined;
  if (softcap !== undefined) {
    h = tanh(mul(u, f(1 / softcap)));
    u = mul(softcap, h);
  }
  if (bias && !task.biasBeforeScale) u = add(u, bias(i, j));
  if (slope !== undefined) u = fma(slope, -Math.abs(queryPosition(task, i) - j), u);
  return { z: u, h };
}

/** The threshold T of §10.5: a key is dropped if its 16 random bits are below T. */
function dropThreshold({ probability }: Dropout): number {
  return Math.min(Math.floor(probability * 2 ** 16 + 0.5), 65_535);
}

/** The factor of the probabilities that are not dropped; 1 without dropout. */
export function keepFactor({ dropout }: HeadTask): number {
  return dropout ? f(2 ** 16 / (2 ** 16 - dropThreshold(dropout))) : 1;
}

/** Whether key j is dropped for query i. */
export function isDropped(task: HeadTask, i: number, j: number): boolean {
  const { dropout } = task;
  if (!dropout) return false;
  const { seed, offset, head } = dropout;
  const u32 = (x: bigint): bigint => BigInt.asUintN(32, x);
  const draw = Math.floor(j / 32) * 4 + (Math.floor(j / 2) % 4);
  const randomWords = philox4x32(
    [u32(BigInt(draw)), u32(BigInt(queryPosition(task, i))), u32(head), u32(offset)],
    [u32(seed), u32(seed >> 32n)],
  );
  const halves = randomWords.flatMap((word) => [Number(word & 0xffffn), Number(word >> 16n)]);
  const number = (Math.floor(j / 8) % 4) * 2 + (j % 2);
  return halves[number]! < dropThreshold(dropout);
}

/** The number of columns of v and out. */
export function valueWidthOf({ v, valueWidth }: HeadTask): number {
  return valueWidth ?? v[0]?.length ?? 0;
}

/** The integers from `begin` to `end` - 1. */
export function range(begin: number, end: number): number[] {
  return Array.from({ length: Math.max(0, end - begin) }, (_, n) => begin + n);
}
