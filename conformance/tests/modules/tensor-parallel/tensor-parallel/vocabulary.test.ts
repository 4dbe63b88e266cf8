/** Vocabularies that are divided among ranks: a table has the bits of the full one, and a loss the bits of its definition. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../../../src/collectives/group.js";
import { embedding as lookUp } from "../../../../../src/functional/embedding.js";
import { crossEntropyLoss } from "../../../../../src/functional/loss.js";
import { Embedding } from "../../../../../src/modules/embedding.js";
import { wideTensor } from "../../../../../src/modules/parameter.js";
import { tensor } from "../../../../../src/ops/create.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { normal } from "../../../../../src/random.js";
import { Variable } from "../../../../../src/tape/variable.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import type { WideDType } from "../../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { maximum as largest, rankedSum } from "../../../../oracle/collective/collective.js";
import { computeGradient } from "../../../../oracle/rows/loss.js";
import { lossOfSums, maximumOf, sumsOf } from "../../../../oracle/rows/loss-parts.js";
import { cast, columnSums, type Matrix, ofRows, rowsOf } from "../../../../oracle/training/matrix.js";
import { differenceOf } from "../../../../values/difference.js";
import { fromCodes, type PlainTensor } from "../../../../values/plain.js";
import { rounded } from "../../../../values/rounded.js";
import { draws } from "../../../harness/draws.js";
import { readPlain, useRanks } from "../ranks.js";

const MOST = 8;
const fround = Math.fround;
const groups = useRanks(MOST, "exact");

const common = {
  ranks: fc.integer({ min: 1, max: MOST }),
  each: fc.oneof(fc.constantFrom(1, 31, 32, 33, 40), fc.integer({ min: 1, max: 12 })),
  dtype: fc.constantFrom<WideDType>("f32", "bf16", "f16"),
  seed: fc.nat(),
};

/** The tensors that a program keeps. They are read when the other ranks have joined its collectives. */
async function readAll(tensors: readonly Tensor[]): Promise<PlainTensor[]> {
  const results: PlainTensor[] = [];
  for (const tensor of tensors) {
    results.push(await readPlain(tensor));
    tensor.dispose();
  }
  return results;
}

/** Copies a gradient or result, so that it outlives its scope. */
const keepClone = (scope: Scope, x: Tensor | undefined): Tensor => scope.keep((x as Tensor).clone());

describe("an embedding divided by vocabulary", () => {
  const cases = fc
    .record({
      ...common,
      columns: fc.integer({ min: 1, max: 20 }),
      sequence: fc.boolean(),
      batch: fc.integer({ min: 1, max: 3 }),
      length: fc.integer({ min: 0, max: 5 }),
    })
    .chain((sizes) => {
      const count = sizes.ranks * sizes.batch * sizes.length;
      const last = sizes.ranks * sizes.each;
      const id = fc.oneof(
        { weight: 8, arbitrary: fc.nat(last - 1) },
        fc.constantFrom(-1, last, 2 ** 31 - 1, -(2 ** 31)),
      );
      return fc.record({
        drawn: fc.constant(sizes),
        ids: fc.array(id, { minLength: count, maxLength: count }),
      });
    });
  type Case = typeof cases extends fc.Arbitrary<infer C> ? C : never;

  /** Values that include zeros of both signs, infinities and NaN. */
  const valuesOf = ({ drawn: { seed, ranks, each: classesPerRank, columns } }: Case): Float32Array =>
    normal({ seed: BigInt(seed), offset: 0n }, ranks * classesPerRank * columns, 1).map((x, i) =>
      i % 5 === 0 ? [-0, 0, Number.NaN, -1 / 0, 1e-30][(i / 5) % 5]! : x,
    );

  function program({ drawn, ids }: Case, group: ProcessGroup): () => Promise<PlainTensor[]> {
    const { each: rowsPerRank, columns, dtype, ranks, batch, length, seed } = drawn;
    const { backend, rank, size } = group;
    const sequence = size > 1 && drawn.sequence;
    using scope = new Scope();
    using layer = new Embedding(backend, ranks * rowsPerRank, columns, {
      ...{ group, sequenceParallel: sequence, dtype, random: new RandomState(1n) },
      initMethod: () => valuesOf({ drawn, ids }),
    });
    const out = layer.forward(tensor(backend, Int32Array.from(ids), [ranks * batch, length], "i32"));
    const grads = normal({ seed: BigInt(seed), offset: 9n }, ids.length * columns, 1);
    const rows = sequence ? batch : ranks * batch;
    const begin = sequence ? rank * rows * length * columns : 0;
    const ownGrads = grads.slice(begin, begin + rows * length * columns);
    out.backward(wideTensor(backend, ownGrads, [rows, length, columns], dtype));
    const keptTensors = [keepClone(scope, out.tensor), keepClone(scope, layer.weight.grad)];
    layer.weight.zeroGrad();
    return () => readAll(keptTensors);
  }

  /** Returns a rank's part of a tensor whose first dimension is divided. */
  function share(x: PlainTensor, count: number, rank: number): PlainTensor {
    const [rows = 0, ...rest] = x.shape;
    const rowLength = x.data.length / count;
    return fromCodes(
      x.dtype,
      [rows / count, ...rest],
      [...x.codes.subarray(rank * rowLength, (rank + 1) * rowLength)],
    );
  }

  it("gives the rows and gradients of the full table, to the bit", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (vocabularyCase) => {
        const { ranks, sequence } = vocabularyCase.drawn;
        const [wholeResult] = await Promise.all(groups(1).map((group) => program(vocabularyCase, group)()));
        const [out, grad] = wholeResult as [PlainTensor, PlainTensor];
        const results = await Promise.all(
          groups(ranks)
            .map((group) => program(vocabularyCase, group))
            .map((run) => run()),
        );
        for (const [rank, [ownOut, ownGrad]] of results.entries()) {
          const rows = ranks > 1 && sequence ? share(out, ranks, rank) : out;
          expect(differenceOf(ownOut as PlainTensor, rows), `rows of rank ${rank}`).toBeUndefined();
          const expected = share(grad, ranks, rank);
          expect(differenceOf(ownGrad as PlainTensor, expected), `gradient of rank ${rank}`).toBeUndefined();
        }
      }),
      { numRuns: draws(60) },
    );
  });
});

describe("a cross-entropy loss divided by classes", () => {
  const LOGITS = [1 / 0, -1 / 0, Number.NaN, 0, -0, 88, -100, 30_000];
  const cases = fc
    .record({
      ...common,
      each: fc.oneof({ weight: 1, arbitrary: fc.constant(0) }, { weight: 8, arbitrary: common.each }),
      rows: fc.integer({ min: 0, max: 6 }),
      smoothing: fc.constantFrom(0, 0, 0.1, 1, 2 ** -149, 1e-60),
      ignore: fc.constantFrom(-100, 0, 3),
      /** Rows with some special logits. One case has -infinity for all classes of a rank. */
      special: fc.constantFrom("none", "some", "a rank without numbers", "a rank of -infinity"),
    })
    .chain((sizes) => {
      const last = sizes.ranks * sizes.each;
      const target = fc.oneof(
        { weight: 8, arbitrary: fc.nat(Math.max(last - 1, 0)) },
        fc.constantFrom(-1, -100, last, 2 ** 31 - 1, -(2 ** 31)),
      );
      return fc.record({
        drawn: fc.constant(sizes),
        targets: fc.array(target, { minLength: sizes.rows, maxLength: sizes.rows }),
      });
    });
  type Case = typeof cases extends fc.Arbitrary<infer C> ? C : never;

  function logitsOf({ drawn: { seed, rows, ranks, each: classesPerRank, dtype, special } }: Case): Matrix {
    const columns = ranks * classesPerRank;
    const data = normal({ seed: BigInt(seed), offset: 0n }, rows * columns, 4).map((x, i) => {
      const rank = Math.floor((i % columns) / classesPerRank);
      if (special === "some" && i % 7 === seed % 7) return LOGITS[(i + seed) % LOGITS.length] as number;
      if (rank === seed % ranks && special === "a rank without numbers") return Number.NaN;
      if (rank === seed % ranks && special === "a rank of -infinity") return -1 / 0;
      return x;
    });
    return cast({ data, shape: [rows, columns], dtype: "f32" }, dtype);
  }

  function program(lossCase: Case, group: ProcessGroup): () => Promise<PlainTensor[]> {
    const { backend, rank } = group;
    const { each: classesPerRank, dtype, smoothing, ignore, rows } = lossCase.drawn;
    using scope = new Scope();
    const ownLogits = rowsOf(logitsOf(lossCase)).flatMap((row) =>
      row.slice(rank * classesPerRank, (rank + 1) * classesPerRank),
    );
    const logits = new Variable(
      wideTensor(backend, Float32Array.from(ownLogits), [rows, classesPerRank], dtype),
      true,
    );
    const targets = tensor(backend, Int32Array.from(lossCase.targets), [rows], "i32");
    const loss = crossEntropyLoss(logits, targets, { group, smoothing, ignore });
    loss.backward(tensor(backend, [3]));
    const keptTensors = [keepClone(scope, loss.tensor), keepClone(scope, logits.grad)];
    logits.zeroGrad();
    return () => readAll(keptTensors);
  }

  /** The definition (numerics.md §7.4), in plain numbers. */
  function lossByDefinition(lossCase: Case): { loss: PlainTensor; dx: PlainTensor[] } {
    const { ranks, each: classesPerRank, dtype, rows, smoothing, ignore } = lossCase.drawn;
    const classes = ranks * classesPerRank;
    const rankLogits = Array.from({ length: ranks }, (_, rank) =>
      rowsOf(logitsOf(lossCase)).map((row) => row.slice(rank * classesPerRank, (rank + 1) * classesPerRank)),
    );
    const tops = largest(rankLogits.map((logits) => logits.map(maximumOf)));
    const sums = rankLogits.map((logits, rank) =>
      logits.flatMap((row, i) =>
        sumsOf(row, {
          target: lossCase.targets[i] as number,
          first: rank * classesPerRank,
          maximum: tops[i] as number,
        }),
      ),
    );
    const rankSums = rankedSum(sums, fround);
    const losses = lossCase.targets.map((target, i) =>
      lossOfSums(rankSums.slice(3 * i, 3 * i + 3), target, { classes, smoothing, ignore }),
    );
    const share = fround(1 / rows);
    const [total] = columnSums(
      ofRows(
        losses.map((loss) => [loss]),
        1,
        "f32",
      ),
      "f32",
    ).data;
    const dx = rankLogits.map((logits, rank) => {
      const values = logits.flatMap((row, i) => {
        const target = lossCase.targets[i] as number;
        if (target === ignore) return row.map(() => 0);
        if (target < 0 || target >= classes) return row.map(() => Number.NaN);
        const shiftedRow = row.map((x) => fround(x - (tops[i] as number)));
        const targetTerms = {
          total: rankSums[3 * i] as number,
          target: target - rank * classesPerRank,
          classes,
        };
        return computeGradient(shiftedRow, targetTerms, fround(smoothing)).map((x) =>
          fround(x * fround(3 * share)),
        );
      });
      return rounded(dtype, [rows, classesPerRank], values);
    });
    return { loss: rounded("f32", [1], [fround((total as number) * share)]), dx };
  }

  it("equals its definition to the bit, and so does its gradient", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (lossCase) => {
        const { loss, dx } = lossByDefinition(lossCase);
        const results = await Promise.all(
          groups(lossCase.drawn.ranks)
            .map((group) => program(lossCase, group))
            .map((run) => run()),
        );
        for (const [rank, [ownLoss, ownDx]] of results.entries()) {
          expect(differenceOf(ownLoss as PlainTensor, loss), `loss on rank ${rank}`).toBeUndefined();
          const expected = dx[rank] as PlainTensor;
          expect(differenceOf(ownDx as PlainTensor, expected), `gradient of rank ${rank}`).toBeUndefined();
        }
      }),
      { numRuns: draws(100) },
    );
  });
});

describe("ranks with different numbers of ids or classes", () => {
  const cases = fc
    .record({
      ranks: fc.integer({ min: 2, max: MOST }),
      odd: fc.nat(),
      each: fc.integer({ min: 1, max: 4 }),
      other: fc.integer({ min: 1, max: 4 }),
      sequence: fc.boolean(),
      of: fc.constantFrom("embedding", "loss"),
    })
    .filter(({ each: rowsPerRank, other: otherRows }) => rowsPerRank !== otherRows);

  it("all throw a disagreement", async () => {
    await fc.assert(
      fc.asyncProperty(
        cases,
        async ({ ranks, odd: oddRank, each: rowsPerRank, other: otherRows, sequence, of: targetRank }) => {
          const outcomes = groups(ranks).map((group) => {
            using scope = new Scope();
            const { backend, rank } = group;
            const count = rank === oddRank % ranks ? otherRows : rowsPerRank;
            const ids = tensor(backend, new Int32Array(ranks), [ranks], "i32");
            const make = (rows: number, columns: number): Tensor =>
              wideTensor(backend, new Float32Array(rows * columns), [rows, columns], "f32");
            const call = (): Variable =>
              targetRank === "embedding"
                ? lookUp(make(count, 2), ids, { group, sequenceParallel: sequence })
                : crossEntropyLoss(make(ranks, count), ids, { group });
            try {
              const result = scope.keep(call().tensor);
              return () => result.data().finally(() => result.dispose());
            } catch (error) {
              return () => Promise.reject(error);
            }
          });
          for (const outcome of outcomes)
            await expect(outcome()).rejects.toThrow(/(ids|classes) on each rank/);
        },
      ),
      { numRuns: draws(30) },
    );
  });
});

it("sizes that the ranks do not divide are refused", () => {
  using _ = new Scope();
  const [group] = groups(3) as [ProcessGroup];
  const { backend } = group;
  expect(() => new Embedding(backend, 4, 2, { group })).toThrow(
    "vocabulary 4 is not divisible among 3 ranks",
  );
  expect(() => new Embedding(backend, 3, 2, { sequenceParallel: true })).toThrow("give group");
  const table = wideTensor(backend, new Float32Array(2), [1, 2], "f32");
  const ids = tensor(backend, Int32Array.of(0, 1), [2], "i32");
  expect(() => lookUp(table, ids, { sequenceParallel: true })).toThrow("give group");
  expect(() => lookUp(table, ids, { group, sequenceParallel: true })).toThrow("pad it");
});
