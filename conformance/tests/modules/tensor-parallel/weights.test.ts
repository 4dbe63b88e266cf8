/** Each rank of a divided layer has parts of the full layer's values and scales, with amaxes that are reduced over all ranks. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { Embedding } from "../../../../src/modules/embedding.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import type { Module } from "../../../../src/modules/module.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import { LayerNorm, type NormModule, RMSNorm } from "../../../../src/modules/norm.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { amaxGroup } from "../../../../src/modules/tensor-parallel/tensor-parallel.js";
import { tensor, zeros } from "../../../../src/ops/create.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import { Variable } from "../../../../src/tape/variable.js";
import type { TensorPart } from "../../../../src/tensor/part.js";
import type { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { elementCount, type Shape, WIDE_DTYPES } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { rounded } from "../../../values/rounded.js";
import { rowsWhere } from "../../harness/modules/calls.js";
import { useRanks } from "./ranks.js";

const RANKS = 2;
const groups = useRanks(RANKS, "exact", 1000);
const f32 = (seed = 1): { readonly dtype: "f32"; readonly random: RandomState } => ({
  dtype: "f32",
  random: new RandomState(BigInt(seed)),
});

/** Returns the values of the full tensor within a part. */
function valuesOfPart(fullValues: Float32Array, { shape, ranges }: TensorPart): number[] {
  const isInsidePart = (index: number, dimension: number): boolean =>
    (ranges[dimension] ?? []).some(([begin, end]) => begin <= index && index < end);
  return [...fullValues].filter((_, i) =>
    shape.every((size, dimension) =>
      isInsidePart(Math.floor(i / elementCount(shape.slice(dimension + 1))) % size, dimension),
    ),
  );
}

type Make = (group: ProcessGroup | undefined, group0: ProcessGroup) => Module;
const LAYERS: Readonly<Record<string, Make>> = {
  column: (group, { backend }) =>
    new Linear(backend, 3, 8, { ...f32(), ...(group ? { group, parallelMode: "column" } : {}) }),
  "columns of two pieces": (group, { backend }) =>
    new Linear(backend, 3, 8, { ...f32(), ...(group ? { group, parallelMode: "column", pieces: 2 } : {}) }),
  row: (group, { backend }) =>
    new Linear(backend, 8, 3, { ...f32(), ...(group ? { group, parallelMode: "row" } : {}) }),
  gated: (group, { backend }) => new LayerNormMLP(backend, 3, 4, { ...f32(), group, activation: "swiglu" }),
  embedding: (group, { backend }) => new Embedding(backend, 6, 3, { ...f32(), group }),
  "attention of divided heads": (group, { backend }) =>
    new MultiheadAttention(backend, 8, 4, { ...f32(), group, softmaxType: "learnable" }),
};

describe("the parameters of a divided layer", () => {
  it.each(Object.entries(LAYERS))(
    "%s: are the parts of the full layer's parameters that their ranges name",
    async (_name, make) => {
      using _ = new Scope();
      const rankGroups = groups(RANKS);
      using wholeLayer = make(undefined, rankGroups[0] as ProcessGroup);
      const coverage = new Map<string, number>();
      for (const group of rankGroups) {
        using layer = make(group, group);
        for (const [name, parameter] of layer.namedParameters()) {
          const expected = wholeLayer.namedParameters().get(name)?.tensor as Tensor;
          const values = expected.dataSync() as Float32Array;
          if (parameter.shape.join() === expected.shape.join()) continue;
          const part = parameter.part as TensorPart;
          expect(part.shape, name).toEqual(expected.shape);
          expect(part.ranges.length, name).toBe(expected.shape.length);
          const ownIndices = valuesOfPart(values, part);
          expect([...(parameter.tensor.dataSync() as Float32Array)], name).toEqual(ownIndices);
          coverage.set(name, (coverage.get(name) ?? 0) + ownIndices.length);
        }
      }
      expect(coverage.size).toBeGreaterThan(0);
      for (const [name, count] of coverage)
        expect(count, name).toBe(wholeLayer.namedParameters().get(name)?.tensor.size);
    },
  );

  it("are quantized by one amax of all ranks", async () => {
    for (const [parallelMode, from, to] of [
      ["column", 32, 64],
      ["row", 64, 32],
    ] as const) {
      const initMethod = (_: RandomState, fullShape: Shape): Float32Array =>
        Float32Array.from({ length: elementCount(fullShape) }, (_, i) => (i + 1) / 64);
      const options = { ...f32(), initMethod };
      const init = { recipe: new Float8CurrentScaling() };
      const rankGroups = groups(RANKS);
      using wholeLayer = quantizedModelInit(
        init,
        () => new Linear((rankGroups[0] as ProcessGroup).backend, from, to, options),
      );
      const layers = rankGroups.map((group) =>
        quantizedModelInit(
          init,
          () => new Linear(group.backend, from, to, { ...options, group, parallelMode }),
        ),
      );
      using expectedScales = (wholeLayer.weight.value as QuantizedTensor).copy("rowwise").scaleInv.clone();
      for (const layer of layers) {
        const { scaleInv } = (layer.weight.value as QuantizedTensor).copy("rowwise");
        expect(await scaleInv.data()).toEqual(await expectedScales.data());
        layer.dispose();
      }
    }
  });
});

describe("without sequenceParallel", () => {
  it("rows are not divided: each rank has all of them", async () => {
    using _ = new Scope();
    const results = groups(RANKS).map((group) => {
      const { backend } = group;
      const x = zeros(backend, "f32", [6, 4]);
      const layers = rowsWhere(({ takes, composed }) => takes.includes("overlap") && !composed).map(
        ([, layer]) => {
          const sizes = { rows: 6, from: 4, to: 8, middle: 8 };
          using rankLayer = layer.build(backend, sizes, { ...f32(), group, parallelMode: "column" });
          return rankLayer.run([new Variable(x)])[0] as Variable;
        },
      );
      using table = new Embedding(backend, 8, 4, { ...f32(), group });
      using row = new Linear(backend, 8, 4, { ...f32(), group, parallelMode: "row" });
      const ids = zeros(backend, "i32", [6]);
      return [...layers, table.forward(ids), row.forward(x)].map(({ shape }) => shape);
    });
    for (const shapes of results) expect(shapes).toEqual(shapes.map(() => [6, 4]));
  });

  it("an embedding has all rows of the full table", async () => {
    const rankGroups = groups(RANKS);
    const embeddings = rankGroups.map((group) => {
      using scope = new Scope();
      using table = new Embedding(group.backend, 6, 3, { ...f32(), group });
      const ids = tensor(group.backend, Int32Array.from([5, 0, 3, 2]), [4], "i32");
      return scope.keep(table.forward(ids).tensor.clone());
    });
    using wholeEmbedding = new Embedding((rankGroups[0] as ProcessGroup).backend, 6, 3, f32());
    const values = wholeEmbedding.weight.tensor.dataSync() as Float32Array;
    for (const disposable of embeddings) {
      expect([...(await disposable.data())]).toEqual(
        [5, 0, 3, 2].flatMap((id) => [...values.subarray(3 * id, 3 * id + 3)]),
      );
      disposable.dispose();
    }
  });

  it("rows need not be divisible, and one row may be a vector", async () => {
    using _ = new Scope();
    for (const shape of [[3, 2], [2]])
      for (const group of groups(RANKS)) {
        using row = new Linear(group.backend, 4, 4, { ...f32(), group, parallelMode: "row" });
        expect(row.forward(zeros(group.backend, "f32", shape)).shape).toEqual([...shape.slice(0, -1), 4]);
        using mlp = new LayerNormMLP(group.backend, 2, 4, { ...f32(), group });
        expect(mlp.forward(zeros(group.backend, "f32", shape)).shape).toEqual(shape);
      }
  });
});

describe("a row-parallel layer", () => {
  it("adds its bias in the type of the input, where parameters have another", async () => {
    const results = groups(RANKS).map((group) => {
      using scope = new Scope();
      const { backend } = group;
      using row = new Linear(backend, 32, 16, { ...f32(), group, parallelMode: "row" });
      row.bias?.tensor.write(new Float32Array(16).fill(1.5));
      const x = zeros(backend, "bf16", [4, 16]);
      const y = autocast({ recipe: new Float8CurrentScaling() }, () => row.forward(x));
      return scope.keep(y.tensor.clone());
    });
    for (const y of results) {
      expect(y.dtype).toBe("bf16");
      expect([...(await y.data())]).toEqual(Array.from({ length: 4 * 16 }, () => 0x3fc0));
      y.dispose();
    }
  });
});

describe("a norm of which each rank has rows", () => {
  const make = { LayerNorm, RMSNorm } as const;
  const cases = (["LayerNorm", "RMSNorm"] as const).flatMap((name) =>
    WIDE_DTYPES.map((dtype) => [name, dtype] as const),
  );
  it.each(cases)(
    "%s of %s: sums the f32 gradients of its parameters over all, and rounds once",
    async (name, dtype) => {
      const values = normal({ seed: 5n, offset: 0n }, 4 * 8, 1);
      const grads = (norm: NormModule, ownInput: Float32Array): Tensor[] => {
        using scope = new Scope();
        const x = new Variable(tensor(norm.backend, ownInput, [ownInput.length / 8, 8]), true);
        norm.forward(x).backward(tensor(norm.backend, ownInput, [ownInput.length / 8, 8]));
        x.zeroGrad();
        return norm.parameters().map(({ grad }) => scope.keep((grad as Tensor).clone()));
      };
      const rankGroups = groups(RANKS);
      const rowsOf = (rank: number) => values.slice(16 * rank, 16 * (rank + 1));
      const norms = rankGroups.map(
        ({ backend }, i) =>
          new make[name](backend, 8, { dtype, group: rankGroups[i], sequenceParallel: true }),
      );
      const results = norms.map((norm, rank) => grads(norm, rowsOf(rank)));
      // the initial gamma is exact in every dtype
      using singleNorm = new make[name]((rankGroups[0] as ProcessGroup).backend, 8, { dtype: "f32" });
      const partialSums = rankGroups.map((_, rank) => {
        for (const parameter of singleNorm.parameters()) parameter.zeroGrad();
        return grads(singleNorm, rowsOf(rank));
      });
      for (const i of partialSums[0]?.keys() ?? []) {
        const [firstSum, second] = await Promise.all(partialSums.map((part) => (part[i] as Tensor).data()));
        const sums = Array.from(
          firstSum as Float32Array,
          (x, j) => x + ((second as Float32Array)[j] as number),
        );
        const expected = rounded(dtype, [8], sums.map(Math.fround));
        for (const result of results)
          expect([...(await (result[i] as Tensor).data())]).toEqual([...expected.data]);
      }
      for (const tensor of [...partialSums.flat(), ...results.flat()]) tensor.dispose();
      for (const parameter of [singleNorm, ...norms].flatMap((norm) => norm.parameters()))
        parameter.zeroGrad();
      for (const norm of norms) norm.dispose();
    },
  );
});

describe("the amaxes of a divided layer in a region with a group of its own", () => {
  const member = (size: number) => ({
    size,
    calls: [] as number[],
    reduceMax(x: readonly unknown[]) {
      this.calls.push(x.length);
    },
  });

  it("are reduced over both groups, and once if both are the same group", () => {
    const [ownGroup, region, single] = [member(2), member(2), member(1)];
    const combinedGroup = amaxGroup(ownGroup as never, region);
    expect(combinedGroup?.size).toBe(4);
    expect(amaxGroup(ownGroup as never, region)).toBe(combinedGroup);
    combinedGroup?.reduceMax([1, 2] as never);
    expect([ownGroup.calls, region.calls]).toEqual([[2], [2]]);
    amaxGroup(ownGroup as never, single)?.reduceMax([1] as never);
    expect([ownGroup.calls, single.calls]).toEqual([[2, 1], []]);
    expect(amaxGroup(ownGroup as never, single)?.size).toBe(2);
    expect(amaxGroup(ownGroup as never, ownGroup)).toBe(ownGroup);
    expect(amaxGroup(undefined, region)).toBe(region);
    expect(amaxGroup(ownGroup as never, undefined)).toBe(ownGroup);
  });

  it("are reduced by one call for all layers of the region", () => {
    using _ = new Scope();
    for (const group of groups(RANKS)) {
      const region = member(2);
      using firstLayer = new Linear(group.backend, 16, 32, { ...f32(), group, parallelMode: "column" });
      using otherLayer = new Linear(group.backend, 16, 32, { ...f32(), group, parallelMode: "column" });
      const x = zeros(group.backend, "f32", [16, 16]);
      autocast({ recipe: new DelayedScaling(), amaxReductionGroup: region }, () => {
        firstLayer.forward(x);
        otherLayer.forward(x);
      });
      expect(region.calls).toEqual([2]);
    }
  });
});
