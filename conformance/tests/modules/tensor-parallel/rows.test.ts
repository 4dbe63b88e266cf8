/** Rows that are divided among ranks: the exchanges, and the memory that each rank keeps. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { Linear } from "../../../../src/modules/linear.js";
import { wideTensor } from "../../../../src/modules/parameter.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { recompute } from "../../../../src/modules/recompute.js";
import { areCompleteBlocks } from "../../../../src/modules/tensor-parallel/row-operand.js";
import { SGD } from "../../../../src/optimizers/sgd.js";
import { Float8CurrentScalingQuantizer } from "../../../../src/quantizers/float8.js";
import { Float8BlockQuantizer } from "../../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { normal } from "../../../../src/random.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../../src/recipes/custom.js";
import { Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import type { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor, TensorData } from "../../../../src/tensor/tensor.js";
import { sampleCases } from "../../harness/draws.js";
import { useRanks } from "./ranks.js";

const RANKS = 2;
const groups = useRanks(RANKS, "exact", 1000);

const values = (seed: number, count: number): Float32Array =>
  normal({ seed: BigInt(seed), offset: 0n }, count, 1);
const rowsOf = (values: Float32Array, columns: number, begin: number, end: number): Float32Array =>
  values.slice(begin * columns, end * columns);

/** Records the exchanges of a group: the dtypes of gathered tensors, and the number of calls that reduce amaxes. */
function watchExchanges(group: ProcessGroup): { readonly gathered: string[]; amaxes: number } {
  const record = { gathered: [] as string[], amaxes: 0 };
  const [gather, gathers, reduceMax] = [
    group.allGather.bind(group),
    group.allGatherCoalesced.bind(group),
    group.reduceMax.bind(group),
  ];
  group.allGather = ((x: Tensor, ...rest: []) => {
    record.gathered.push(x.dtype);
    return gather(x, ...rest);
  }) as typeof group.allGather;
  group.allGatherCoalesced = (requests) => {
    record.gathered.push(...requests.map(({ x }) => x.dtype));
    return gathers(requests);
  };
  group.reduceMax = (tensors) => {
    record.amaxes++;
    reduceMax(tensors);
  };
  return record;
}

const column = (group: ProcessGroup, from: number, to: number, sequenceParallel = true): Linear =>
  new Linear(group.backend, from, to, {
    group,
    parallelMode: "column",
    sequenceParallel,
    random: new RandomState(7n),
  });

describe("a column-parallel layer whose rows are divided", () => {
  const RECIPES: Readonly<Record<string, readonly [() => Recipe, number]>> = {
    current: [() => new Float8CurrentScaling(), 16],
    block: [() => new Float8BlockScaling(), 128],
    "block, square x and gradients": [
      () => new Float8BlockScaling({ xBlockScalingDim: 2, gradBlockScalingDim: 1, wBlockScalingDim: 1 }),
      128,
    ],
    mxfp8: [() => new MXFP8BlockScaling(), 32],
    nvfp4: [() => new NVFP4BlockScaling({ disableStochasticRounding: true }), 32],
  };
  const cases = Object.entries(RECIPES).flatMap(([name, [recipe, unit]]) =>
    [unit, 8].map((rows) => ({ name, recipe, unit, rows })),
  );
  it.each(sampleCases(cases, 6))(
    "$name, $rows rows of each rank: has the columns of the full result, to the bit",
    async (testCase) => {
      const { recipe, unit, rows } = testCase;
      const [x, dy] = [values(1, RANKS * rows * unit), values(2, RANKS * rows * 2 * unit)];
      const pass = (layer: Linear, ownInput: Float32Array, grad: Float32Array): Tensor[] => {
        using scope = new Scope();
        const { backend } = layer;
        const y = autocast({ recipe: recipe() }, () =>
          layer.forward(wideTensor(backend, ownInput, [ownInput.length / unit, unit], "bf16")),
        );
        const width = layer.weight.shape[0] as number;
        y.backward(wideTensor(backend, grad, [grad.length / width, width], "bf16"));
        const keptTensors = [y.tensor, layer.weight.grad, layer.bias?.grad].map((tensor) =>
          scope.keep((tensor as Tensor).clone()),
        );
        for (const parameter of layer.parameters()) parameter.zeroGrad();
        return keptTensors;
      };
      const rankGroups = groups(RANKS);
      using wholeLayer = new Linear((rankGroups[0] as ProcessGroup).backend, unit, RANKS * unit, {
        random: new RandomState(7n),
      });
      const expected = pass(wholeLayer, x, dy);
      const layers = rankGroups.map((group) => column(group, unit, RANKS * unit));
      const results = layers.map((layer, rank) => {
        // this rank's columns of all rows
        const grad = Float32Array.from(
          { length: RANKS * rows * unit },
          (_, i) => dy[Math.floor(i / unit) * RANKS * unit + rank * unit + (i % unit)] as number,
        );
        return pass(layer, rowsOf(x, unit, rank * rows, (rank + 1) * rows), grad);
      });
      const [y, dw, db] = (await Promise.all(expected.map((tensor) => tensor.data()))) as TensorData[];
      for (const [rank, [ownY, ownDw, ownDb]] of results.entries()) {
        const columns = Array.from(
          { length: RANKS * rows * unit },
          (_, i) => y?.[Math.floor(i / unit) * RANKS * unit + rank * unit + (i % unit)],
        );
        expect([...((await ownY?.data()) ?? [])]).toEqual(columns);
        const [begin, end] = [rank * unit, (rank + 1) * unit];
        expect(await ownDw?.data()).toEqual(dw?.slice(begin * unit, end * unit));
        expect(await ownDb?.data()).toEqual(db?.slice(begin, end));
      }
      for (const disposable of [...expected, ...results.flat(), ...layers]) disposable.dispose();
    },
  );

  it("sends codes where its rows are whole blocks, else values; and amaxes only of tensors that are divided among ranks", () => {
    const exchangedAmaxes = (recipe: Recipe, rows: number, recomputes: boolean) => {
      const amaxes = groups(RANKS).map((group) => {
        using _ = new Scope();
        using layer = column(group, 32, 64);
        const watch = watchExchanges(group);
        const x = new Variable(wideTensor(group.backend, values(1, rows * 32), [rows, 32], "bf16"));
        const run = (): Variable =>
          autocast({ recipe }, () =>
            recomputes ? recompute((input) => layer.forward(input), x) : layer.forward(x),
          );
        const y = recomputes ? run() : noGrad(run);
        if (recomputes)
          y.backward(wideTensor(group.backend, values(2, RANKS * rows * 32), [RANKS * rows, 32], "bf16"));
        for (const parameter of layer.parameters()) parameter.zeroGrad();
        return { gathered: [...new Set(watch.gathered)].sort(), amaxes: watch.amaxes };
      });
      expect(amaxes[1]).toEqual(amaxes[0]);
      return amaxes[0];
    };
    const nvfp4 = (): Recipe => new NVFP4BlockScaling({ disableRht: true });
    expect(exchangedAmaxes(new MXFP8BlockScaling(), 32, false)).toEqual({
      gathered: ["e4m3", "e8m0"],
      amaxes: 0,
    });
    expect(exchangedAmaxes(new MXFP8BlockScaling(), 8, false)).toEqual({ gathered: ["bf16"], amaxes: 0 });
    // the amax of the weight and the amax of the input
    expect(exchangedAmaxes(nvfp4(), 32, false)).toEqual({ gathered: ["e2m1", "e4m3"], amaxes: 2 });
    // the amax of the weight only, because each rank has the full input
    expect(exchangedAmaxes(nvfp4(), 8, false)).toEqual({ gathered: ["bf16"], amaxes: 1 });
    // the amax of the weight in both runs, and the amax of this rank's part of the gradient
    expect(exchangedAmaxes(nvfp4(), 8, true)).toEqual({ gathered: ["bf16"], amaxes: 3 });
    expect(exchangedAmaxes(new Float8CurrentScaling(), 8, false)).toEqual({ gathered: ["e4m3"], amaxes: 2 });
  });

  it("keeps as much of its input as a layer that gets only its rows", () => {
    const keptBytes = (group: ProcessGroup, sequenceParallel: boolean, recipe: Recipe): number => {
      using _ = new Scope();
      using layer = column(group, 64, 64, sequenceParallel);
      const x = wideTensor(group.backend, values(1, 32 * 64), [32, 64], "bf16");
      const liveBefore = group.backend.memoryUse().live;
      const y = autocast({ recipe }, () => layer.forward(x));
      return group.backend.memoryUse().live - liveBefore - y.tensor.byteLength;
    };
    for (const make of [
      () => new MXFP8BlockScaling(),
      () => new Float8CurrentScaling(),
      () => new NVFP4BlockScaling(),
    ]) {
      const dividedBytes = groups(RANKS).map((group) => keptBytes(group, true, make()));
      const fullBytes = groups(RANKS).map((group) => keptBytes(group, false, make()));
      // memory that a rank needs for a collective is freed when the other ranks have joined
      expect(dividedBytes.at(-1)).toBe(fullBytes.at(-1));
    }
  });

  it("gathers codes of a custom quantizer, whatever copies it made before", () => {
    for (const group of groups(RANKS)) {
      using _ = new Scope();
      using layer = column(group, 32, 64);
      const shard = { group, dimension: "rows" } as const;
      const usage = { rowwise: false, columnwise: true };
      const recipe = new CustomRecipe({
        quantizerFactory: () => new Float8CurrentScalingQuantizer({ ...usage, shard }),
      });
      const x = wideTensor(group.backend, values(1, 8 * 32), [8, 32], "bf16");
      expect(noGrad(() => autocast({ recipe }, () => layer.forward(x))).shape).toEqual([RANKS * 8, 32]);
    }
  });

  it("asks a custom recipe for each quantizer once", () => {
    for (const group of groups(RANKS)) {
      using _ = new Scope();
      using layer = column(group, 32, 64);
      let requestCount = 0;
      const recipe = new CustomRecipe({
        quantizerFactory: () => {
          requestCount++;
          return new MXFP8Quantizer();
        },
      });
      const x = wideTensor(group.backend, values(1, 8 * 32), [8, 32], "bf16");
      const run = (): Variable => noGrad(() => autocast({ recipe }, () => layer.forward(x)));
      run();
      const firstCount = requestCount;
      run();
      expect(requestCount).toBe(firstCount);
    }
  });
});

describe("a divided weight that is quantized", () => {
  it("is quantized again by the amax of all ranks, after a pass as before", async () => {
    const init = { recipe: new Float8CurrentScaling() };
    const scales: Tensor[] = [];
    const results = groups(RANKS).map((group) => {
      using scope = new Scope();
      const layer = quantizedModelInit(init, () => column(group, 32, 64, false));
      const optimizer = new SGD(layer, { learningRate: 1 });
      const y = autocast(init, () =>
        layer.forward(wideTensor(group.backend, values(1, 1024), [32, 32], "bf16")),
      );
      y.backward(wideTensor(group.backend, values(2 + group.rank, 1024), [32, 32], "bf16"));
      optimizer.step();
      optimizer.zeroGrad();
      scales.push(scope.keep((layer.weight.value as QuantizedTensor).copy("rowwise").scaleInv.clone()));
      return [layer, optimizer] as const;
    });
    const [firstScale, secondScale] = scales as [Tensor, Tensor];
    expect(await secondScale.data()).toEqual(await firstScale.data());
    for (const disposable of [...scales, ...results.flat()]) disposable.dispose();
  });
});

describe("rows of ranks", () => {
  const QUANTIZERS: Readonly<Record<string, readonly [Quantizer, number]>> = {
    current: [new Float8CurrentScalingQuantizer(), 1],
    block: [new Float8BlockQuantizer(), 128],
    mxfp8: [new MXFP8Quantizer(), 32],
    nvfp4: [new NVFP4Quantizer(), 16],
  };
  it.each(Object.entries(QUANTIZERS))(
    "%s: are whole blocks where no block has rows of two ranks",
    (_name, [dimension, unit]) => {
      const counts = [0, 1, unit, unit + 1, 2 * unit];
      for (const a of counts)
        for (const b of counts)
          for (const c of counts) {
            const rows = [a, b, c];
            // the first row of each rank that has rows
            const begins = rows.flatMap((count, i) =>
              count > 0 ? [rows.slice(0, i).reduce((sum, count) => sum + count, 0)] : [],
            );
            const isWholeUnits = begins.every((begin) => begin % unit === 0);
            expect(areCompleteBlocks(dimension.spec, rows), `${rows}`).toBe(isWholeUnits);
          }
    },
  );
});
