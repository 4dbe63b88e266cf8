/**
 * Attention of thousands of tokens on a GPU. The reference computes a sample: rows that lie at the boundaries of tiles and rows
 * at random, and the gradients of some keys.
 */
import { it } from "vitest";
import { Scope } from "../../../../src/tensor/scope.js";
import { splitmix32 } from "../../../arbitraries/random.js";
import { checkKeys, KEYS } from "../../harness/gpu/attention/key-gradients.js";
import {
  computeResults,
  createProblem,
  type Problem,
  type Results,
} from "../../harness/gpu/attention/problem.js";
import { checkRows } from "../../harness/gpu/attention/rows.js";
import { describeShape, LARGE_SHAPES, type LargeShape } from "../../harness/gpu/attention/shapes.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "../../harness/gpu/gpu.js";
import { record } from "../../harness/gpu/record.js";

/** The number of sampled heads, and of rows of each: 2 and 4 by default, 2 and 64 in the long suite. */
const HEADS = 2;
const ROWS = Math.min(4 * Math.ceil(RUNS / 100), 64);
/** The reference needs almost a second for a row of this many keys or more. */
const MANY_KEYS = 2 ** 16;

/** Queries at the boundaries of tiles, and others at random. */
function sampledQueries({ queries: count, keys }: LargeShape, next: () => number): readonly number[] {
  if (keys >= MANY_KEYS) return [...new Set([0, next() % count])];
  if (count <= ROWS) return Array.from({ length: count }, (_, i) => i);
  const boundaries = [0, 64, count - 1].filter((query) => query < count);
  const others = Array.from({ length: ROWS - boundaries.length }, () => next() % count);
  return [...new Set([...boundaries, ...others])];
}

/**
 * The first of 16 compared keys: at random, and at the end if other queries see the last keys. Random bits depend on the number
 * of a key, so with dropout only the first keys are compared.
 */
function sampledKeys({ keys, causal, dropout }: LargeShape, next: () => number): readonly number[] {
  if (dropout) return [0];
  const somewhere = (next() % (keys / KEYS)) * KEYS;
  return causal ? [somewhere, keys - KEYS] : [somewhere];
}

describeOnGpu("attention of large shapes on a GPU", () => {
  const { gpu, reference } = useGpu();

  function checkForward(problem: Problem, results: Results, next: () => number): number {
    const { batch, heads } = problem.shape;
    let rowCount = 0;
    for (let n = 0; n < HEADS; n++) {
      const [b, head] = n === 0 ? [0, 0] : [next() % batch, next() % heads[0]];
      const keyHead = Math.floor((head * heads[1]) / heads[0]);
      const rows = sampledQueries(problem.shape, next).map((query) => ({ b, head, query }));
      checkRows(reference(), problem, results, { b, keyHead, rows });
      rowCount += rows.length;
    }
    return rowCount;
  }

  it.each(LARGE_SHAPES.map((shape) => [describeShape(shape), shape] as const))("%s", (name, shape) => {
    using _scope = new Scope();
    const next = splitmix32(SEED);
    const problem = createProblem(shape);
    const results = computeResults(gpu(), problem);
    const rows = checkForward(problem, results, next);
    const keys = shape.backward ? sampledKeys(shape, next) : [];
    for (const first of keys)
      checkKeys(reference(), problem, results, {
        b: next() % shape.batch,
        keyHead: next() % shape.heads[1],
        first,
      });
    record(gpu(), { group: "large", name: `attention, ${name}`, runs: rows + KEYS * keys.length });
  });
});
