/** The gradients of the attention oracle are close to the derivatives of softmax attention in f64. */
import { describe, expect, it } from "vitest";
import { attention } from "../../oracle/attention/attention.js";
import { attentionBackward } from "../../oracle/attention/backward.js";
import { type HeadTask, keepFactor } from "../../oracle/attention/scores.js";
import {
  createTask,
  droppedPairs,
  FEATURES,
  matrix,
  plainAttention,
  relativeTolerance,
  SUBNORMAL_BOUND,
  TYPES,
  uniform,
} from "../harness/plain-attention.js";

const SIZE = { keys: 19, queries: 3, width: 4 };
const HEADS = [0, 1];

/** The derivative of `loss` for one element of a row, by central differences. */
function derivative(row: number[], dimension: number, loss: () => number): number {
  const step = 2 ** -14;
  const x = row[dimension]!;
  row[dimension] = x + step;
  const above = loss();
  row[dimension] = x - step;
  const below = loss();
  row[dimension] = x;
  return (above - below) / (2 * step);
}

/** The inputs of two heads that share keys and values, as arrays whose elements can change. */
function inputsOf(type: (typeof TYPES)[number], features: Partial<HeadTask>) {
  const base = createTask(type, features, SIZE);
  const next = uniform(5);
  const draw = (rows: number, columns: number) => matrix(next, [rows, columns], type.type);
  return {
    base,
    k: base.k.map((row) => [...row]),
    v: base.v.map((row) => [...row]),
    q: HEADS.map(() => draw(SIZE.queries, SIZE.width)),
    grad: HEADS.map(() => draw(SIZE.queries, base.v[0]!.length)),
    bias: HEADS.map((h) => base.q.map((_, i) => base.k.map((__, j) => base.bias?.(i + h, j) ?? 0))),
    sinks: HEADS.map((h) => (base.sink ?? 0) + h / 2),
  };
}

function tasksOf({ base, k, v, q, bias, sinks }: ReturnType<typeof inputsOf>): HeadTask[] {
  return HEADS.map((h) => ({
    ...{ ...base, k, v, q: q[h]! },
    bias: base.bias && ((i, j) => bias[h]![i]![j]!),
    sink: base.sink === undefined ? undefined : sinks[h],
    dropout: base.dropout && { ...base.dropout, head: BigInt(h) },
  }));
}

const sumOf = (terms: readonly number[]): number => terms.reduce((a, b) => a + b, 0);

const absoluteDot = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, x, dimension) => sum + Math.abs(x * b[dimension]!), 0);

describe.each(TYPES)("gradients of $type", ({ unit, ...type }) => {
  it.each(FEATURES)("$name", (features) => {
    const inputs = inputsOf({ ...type, unit } as (typeof TYPES)[number], features.task);
    const { base, k, v, q, grad, bias, sinks } = inputs;
    const tasks = tasksOf(inputs);
    const droppedPairsOfHeads = tasks.map(droppedPairs);
    const lossOf = (task: HeadTask, head: number): number =>
      sumOf(
        plainAttention(task, droppedPairsOfHeads[head]).out.flatMap((row, i) =>
          row.map((x, dimension) => x * grad[head]![i]![dimension]!),
        ),
      );
    const loss = (): number => sumOf(tasksOf(inputs).map(lossOf));
    const results = attentionBackward(
      tasks.map((task, head) => ({ ...task, ...attention(task), grad: grad[head]! })),
    );
    const keepScale = keepFactor(base);
    const plainHeads = tasks.map((task, head) => plainAttention(task, droppedPairsOfHeads[head]));

    // y = p (keep w - Δ): out in Δ has the error of the type, and y is rounded to it; tanh is in the score and its derivative
    const relative = 2 * unit + 6 * relativeTolerance(base) + (base.softcap === undefined ? 0 : 2 ** -9.9);
    const sizeOfDelta = (head: number, i: number): number =>
      keepScale *
      plainHeads[head]!.p[i]!.reduce(
        (sum, probability, j) => sum + probability * absoluteDot(grad[head]![i]!, v[j]!),
        0,
      );
    const sizeOfY = (head: number, i: number, j: number): number =>
      plainHeads[head]!.p[i]![j]! * (keepScale * absoluteDot(grad[head]![i]!, v[j]!) + sizeOfDelta(head, i));
    const expectNear = (actual: number, row: number[], dimension: number, size: number): void => {
      const expected = derivative(row, dimension, loss);
      const bound = relative * size + unit * Math.abs(expected) + SUBNORMAL_BOUND;
      expect(Math.abs(actual - expected)).toBeLessThanOrEqual(bound);
    };
    const overRows = (term: (head: number, i: number) => number): number =>
      sumOf(HEADS.flatMap((h) => base.q.map((_, i) => term(h, i))));

    for (const [headIndex, head] of q.entries()) {
      for (const [i, row] of head.entries()) {
        const sizes = k.map((_, j) => sizeOfY(headIndex, i, j));
        for (const dimension of row.keys()) {
          const size = base.scale * sumOf(k.map((key, j) => sizes[j]! * Math.abs(key[dimension]!)));
          expectNear(results.dq[headIndex]![i]![dimension]!, row, dimension, size);
        }
        if (base.bias)
          for (const j of k.keys())
            expectNear(results.dbias[headIndex]![i]![j]!, bias[headIndex]![i]!, j, sizes[j]!);
      }
      if (base.sink === undefined) expect(results.sinkTerms[headIndex]).toEqual([]);
      else
        expectNear(
          -sumOf(results.sinkTerms[headIndex]!),
          sinks,
          headIndex,
          sumOf(base.q.map((_, i) => sizeOfDelta(headIndex, i))),
        );
    }
    for (const [j, key] of k.entries()) {
      for (const dimension of key.keys()) {
        const size =
          base.scale * overRows((head, i) => sizeOfY(head, i, j) * Math.abs(q[head]![i]![dimension]!));
        expectNear(results.dk[j]![dimension]!, key, dimension, size);
      }
      for (const dimension of v[j]!.keys()) {
        const size =
          keepScale *
          overRows((head, i) => plainHeads[head]!.p[i]![j]! * Math.abs(grad[head]![i]![dimension]!));
        expectNear(results.dv[j]![dimension]!, v[j]!, dimension, size);
      }
    }
  });
});
