/** The forward pass of attention (numerics.md §10.3 and §10.4), for one sequence and one query head. */
import { log } from "../core/math.js";
import { add, div, fma, mul, sub } from "../core/rational.js";
import { roundedIn } from "../core/scale.js";
import { ex2 } from "../core/special-functions.js";
import {
  chain,
  computeScore,
  exponentFactor,
  type HeadTask,
  isDropped,
  isScaled,
  isVisible,
  keepFactor,
  LN2,
  LOG2E,
  range,
  valueWidthOf,
} from "./scores.js";

const MINUS_INFINITY = Number.NEGATIVE_INFINITY;

export interface HeadResult {
  /** [Sq][V], rounded to the type. */
  readonly out: number[][];
  /** [Sq]. */
  readonly lse: number[];
  /** The maximum logit; -Infinity without rows. */
  readonly maximum: number;
}

/** The online-softmax state of a row in one split, in the symbols of numerics.md §10.4. */
interface State {
  /** The maximum of z. */
  readonly m: number;
  /** The maximum as an exponent of two: m ⊗ c. */
  readonly r: number;
  /** e_0 to e_7. */
  readonly sums: readonly number[];
  /** o_d. */
  readonly output: readonly number[];
}

/** The totals of a row. */
interface Totals {
  readonly R: number;
  readonly E: number;
  readonly A: readonly number[];
}

/** The maximum, NaN ignored. */
function largest(values: readonly number[]): number {
  return values.reduce((top, x) => (Number.isNaN(x) ? top : Math.max(top, x)), MINUS_INFINITY);
}

/** The number that is subtracted from exponents: the scaled maximum, or +0 if that maximum is minus infinity. */
function subtrahend(r: number): number {
  return r === MINUS_INFINITY ? 0 : r;
}

/** The state after a block with a visible key. `keys` are all keys of the block. */
function afterBlock(task: HeadTask, i: number, state: State, keys: readonly number[]): State {
  const scores = new Map(
    keys.filter((j) => isVisible(task, i, j)).map((j) => [j, computeScore(task, i, j).z] as const),
  );
  const c = exponentFactor(task);
  const m = largest([state.m, ...scores.values()]);
  const r = mul(m, c);
  const b = subtrahend(r);
  const a = ex2(sub(state.r, b));
  const p = new Map([...scores].map(([j, z]) => [j, ex2(fma(z, c, -b))] as const));
  const sums = state.sums.map((sum, l) =>
    [...p].filter(([j]) => j % 8 === l).reduce((total, [, value]) => add(total, value), mul(sum, a)),
  );
  const factors = keys.map((j) => {
    const value = p.get(j);
    if (value === undefined) return undefined;
    return isDropped(task, i, j) ? 0 : roundedIn(value, task.type);
  });
  const output = state.output.map((o, d) => {
    const pairs = keys.map((j, n) => {
      const factor = factors[n];
      return factor === undefined ? undefined : ([factor, task.v[j]![d]!] as const);
    });
    return chain(task, add(mul(o, a), 0), pairs);
  });
  return { m, r, sums, output };
}

/** The state after a split; undefined if it has no visible key. */
function splitState(task: HeadTask, i: number, begin: number, end: number): State | undefined {
  const initial: State = {
    ...{ m: MINUS_INFINITY, r: MINUS_INFINITY },
    ...{ sums: Array(8).fill(0), output: Array(valueWidthOf(task)).fill(0) },
  };
  let state = initial;
  for (let start = begin; start < end; start += task.blockKeys) {
    const keys = range(start, Math.min(end, start + task.blockKeys));
    if (keys.some((j) => isVisible(task, i, j))) state = afterBlock(task, i, state, keys);
  }
  return state === initial ? undefined : state;
}

/** The totals after a split, or the sink, has been merged. */
function mergeTotals({ R, E, A }: Totals, r: number, e: number, o: readonly number[]): Totals {
  const next = largest([R, r]);
  const b = subtrahend(next);
  const f = ex2(sub(R, b));
  const g = ex2(sub(r, b));
  return {
    R: next,
    E: add(mul(E, f), mul(e, g)),
    A: A.map((total, d) => add(mul(total, f), mul(o[d]!, g))),
  };
}

function sumOfEight(e: readonly number[]): number {
  const [a, b, c, d] = [0, 2, 4, 6].map((l) => add(e[l]!, e[l + 1]!)) as [number, number, number, number];
  return add(add(a, b), add(c, d));
}

interface RowResult {
  readonly out: number[];
  readonly lse: number;
  readonly maximum: number;
}

function row(task: HeadTask, i: number): RowResult {
  const splitKeys = task.splitKeys || Math.max(1, task.k.length);
  const splits = range(0, Math.ceil(task.k.length / splitKeys))
    .map((n) => splitState(task, i, n * splitKeys, Math.min(task.k.length, (n + 1) * splitKeys)))
    .filter((state) => state !== undefined);
  const zeros: number[] = Array(valueWidthOf(task)).fill(0);
  let totals: Totals = { R: MINUS_INFINITY, E: 0, A: zeros };
  for (const { r, sums, output } of splits) totals = mergeTotals(totals, r, sumOfEight(sums), output);
  if (task.sink !== undefined) totals = mergeTotals(totals, mul(task.sink, LOG2E), 1, zeros);
  const { R, E, A } = totals;
  const m = largest(splits.map((state) => state.m));
  const maximum = add(isScaled(task) ? m : mul(m, task.scale), 0);
  if (E === 0) return { out: zeros, lse: MINUS_INFINITY, maximum };
  const factor = div(keepFactor(task), E);
  return {
    out: A.map((a) => roundedIn(mul(a, factor), task.type)),
    lse: fma(R, LN2, log(E)),
    maximum,
  };
}

/** The attention of one sequence and one query head. */
export function attention(task: HeadTask): HeadResult {
  const rows = task.q.map((_, i) => row(task, i));
  return {
    out: rows.map(({ out }) => out),
    lse: rows.map(({ lse }) => lse),
    maximum: largest(rows.map(({ maximum }) => maximum)),
  };
}
