/** The backward pass of attention (numerics.md §10.6), for one sequence and the query heads that share one head of keys. */
import { add, fma, mul, sub } from "../core/rational.js";
import { roundedIn } from "../core/scale.js";
import { ex2 } from "../core/special-functions.js";
import { laneSum } from "../rows/norm.js";
import {
  chain,
  computeScore,
  dot,
  exponentFactor,
  type HeadTask,
  isDropped,
  isVisible,
  keepFactor,
  LOG2E,
  type Pair,
  range,
} from "./scores.js";

type Matrix = readonly (readonly number[])[];

/** A head and the results of its forward pass. */
export interface BackwardTask extends HeadTask {
  /** The gradient of out, in the type. */
  readonly grad: Matrix;
  readonly out: Matrix;
  readonly lse: readonly number[];
}

export interface AttentionGradients {
  /** For each head: [Sq][D]. */
  readonly dq: number[][][];
  readonly dk: number[][];
  readonly dv: number[][];
  /** For each head: [Sq][Sk] in f32, not summed over shared elements. */
  readonly dbias: number[][][];
  /** For each head: the terms of the sink's gradient, one for each row. Empty without a sink. */
  readonly sinkTerms: number[][];
}

/** The factors by which a visible pair enters the gradients. */
interface Contribution {
  /** y and p, rounded to the type; p is 0 for a dropped key. */
  readonly y: number;
  readonly p: number;
  readonly bias: number;
}

/** Δ of each row. */
function rowDeltas({ grad, out }: BackwardTask): number[] {
  return grad.map((g, i) => laneSum(g.map((value, d) => mul(value, out[i]![d]!))));
}

function contribution(task: BackwardTask, i: number, j: number, delta: number): Contribution {
  const { z, h } = computeScore(task, i, j);
  const L = mul(task.lse[i]!, LOG2E);
  const p = ex2(fma(z, exponentFactor(task), -L));
  const w = dot(task, task.grad[i]!, task.v[j]!);
  const isKept = !isDropped(task, i, j);
  const scoreGradient = mul(p, isKept ? fma(w, keepFactor(task), -delta) : -delta);
  const y = h === undefined ? scoreGradient : mul(scoreGradient, fma(-h, h, 1));
  return {
    y: roundedIn(y, task.type),
    p: isKept ? roundedIn(p, task.type) : 0,
    // a bias after the scale is added to the result of tanh, so its gradient lacks the derivative of tanh
    bias: task.biasBeforeScale ? mul(y, task.scale) : scoreGradient,
  };
}

/** The contributions of a head: [Sq][Sk], undefined for pairs that are not visible. */
function pairContributions(task: BackwardTask): (Contribution | undefined)[][] {
  const deltas = rowDeltas(task);
  return task.q.map((_, i) =>
    task.k.map((_, j) => {
      if (task.lse[i] === Number.NEGATIVE_INFINITY || !isVisible(task, i, j)) return undefined;
      return contribution(task, i, j, deltas[i]!);
    }),
  );
}

/** The gradient of one query. */
function queryGradients(task: BackwardTask, contributions: readonly (Contribution | undefined)[]): number[] {
  return range(0, task.q[0]?.length ?? 0).map((d) => {
    let sum = 0;
    for (let first = 0; first < task.k.length; first += task.blockKeys) {
      const keys = range(first, Math.min(task.k.length, first + task.blockKeys));
      if (keys.every((j) => contributions[j] === undefined)) continue;
      const pairs = keys.map((j): Pair => {
        const contribution = contributions[j];
        return contribution && [contribution.y, task.k[j]![d]!];
      });
      sum = add(sum, chain(task, 0, pairs));
    }
    return roundedIn(mul(sum, task.scale), task.type);
  });
}

function sinkTerms(task: BackwardTask): number[] {
  const { sink, lse } = task;
  if (sink === undefined) return [];
  const deltas = rowDeltas(task);
  return deltas.map((delta, i) => {
    if (lse[i] === Number.NEGATIVE_INFINITY) return 0;
    return mul(ex2(sub(mul(sink, LOG2E), mul(lse[i]!, LOG2E))), delta);
  });
}

/** The gradients of a group of query heads that share one head of keys and values, in ascending order. */
export function attentionBackward(heads: readonly BackwardTask[]): AttentionGradients {
  const contributions = heads.map(pairContributions);
  const [{ k, v, scale, type }] = heads as readonly [BackwardTask];
  const keep = keepFactor(heads[0]!);

  /**
   * One chain over the queries of all heads. Its products multiply a factor of the pair (query, key j) by an element of the
   * query's row.
   */
  const overQueries = (j: number, factor: "y" | "p", rowAt: (task: BackwardTask, i: number) => number) =>
    heads.reduce((sum, task, h) => {
      const pairs = contributions[h]!.map((ofQuery, i): Pair => {
        const queryTerm = ofQuery[j];
        return queryTerm && [queryTerm[factor], rowAt(task, i)];
      });
      return chain(task, sum, pairs);
    }, 0);

  return {
    dq: heads.map((task, h) => contributions[h]!.map((ofQuery) => queryGradients(task, ofQuery))),
    dk: k.map((key, j) =>
      key.map((_, d) =>
        roundedIn(
          mul(
            overQueries(j, "y", ({ q }, i) => q[i]![d]!),
            scale,
          ),
          type,
        ),
      ),
    ),
    dv: v.map((value, j) =>
      value.map((_, d) =>
        roundedIn(
          mul(
            overQueries(j, "p", ({ grad }, i) => grad[i]![d]!),
            keep,
          ),
          type,
        ),
      ),
    ),
    dbias: contributions.map((head) => head.map((ofQuery) => ofQuery.map((each) => each?.bias ?? 0))),
    sinkTerms: heads.map(sinkTerms),
  };
}
