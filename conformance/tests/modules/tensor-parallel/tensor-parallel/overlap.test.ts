/** Exchanges in chunks give the same bits as one exchange, and layers use chunks as the option `overlap` says. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { autocast } from "../../../../../src/autocast.js";
import { ProcessGroup } from "../../../../../src/collectives/group.js";
import { Linear } from "../../../../../src/modules/linear.js";
import { wideTensor } from "../../../../../src/modules/parameter.js";
import { zeros } from "../../../../../src/ops/create.js";
import { Float8RowQuantizer } from "../../../../../src/quantizers/float8-row.js";
import { MXFP8Quantizer } from "../../../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../../../src/quantizers/nvfp4.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { normal } from "../../../../../src/random.js";
import { Float8BlockScaling, MXFP8BlockScaling } from "../../../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../../../src/recipes/custom.js";
import type { Recipe } from "../../../../../src/recipes/recipe.js";
import { Variable } from "../../../../../src/tape/variable.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { sampleCases } from "../../../harness/draws.js";
import { rowsWhere } from "../../../harness/modules/calls.js";
import { libraryRecipe } from "../../../harness/step/library-recipes.js";
import { RECIPES as RECIPE_OPTIONS, type RecipeName } from "../../../harness/step/options.js";
import { difference } from "../../../harness/step/seen.js";
import { type ParallelCase, resultsOfRank } from "../case.js";
import { useRanks } from "../ranks.js";
import { type WatchedGroup, watchedGroup } from "../side-work.js";

/** The methods by which rows are exchanged. Their calls on rank 0 are counted. */
const EXCHANGES = ["allGather", "allGatherCoalesced", "reduceScatter", "allReduce"] as const;

const RANKS = 2;
const groups = useRanks(3, "exact", 1000);
let calls = 0;

beforeEach(() => {
  calls = 0;
  for (const name of EXCHANGES) {
    const method = ProcessGroup.prototype[name] as (...args: unknown[]) => unknown;
    vi.spyOn(ProcessGroup.prototype, name).mockImplementation(function (
      this: ProcessGroup,
      ...args: unknown[]
    ) {
      const isMaximum = (args[1] as { reduction?: string } | undefined)?.reduction === "max";
      if (this.rank === 0 && !isMaximum) calls++;
      return method.apply(this, args) as never;
    });
  }
});
afterEach(() => vi.restoreAllMocks());

const RECIPES = [
  ["none", 16],
  ["delayed", 16],
  ["current", 16],
  ["block", 128],
  ["block, square x", 128],
  ["mxfp8", 32],
  ["nvfp4", 16],
  ["custom", 32],
] as const;

/** A column-parallel layer, a row-parallel layer, and a LayerNormMLP, which has both. */
const LAYERS = ["column", "row", "mlp"] as const;

describe("a layer whose exchanges overlap its products", () => {
  const cases = RECIPES.flatMap(([recipe, unit]) =>
    LAYERS.flatMap((layer) => [true, false].map((sequence) => ({ recipe, unit, layer, sequence }))),
  );
  /** Each exchange in its cheapest form. */
  const isPlain = ({ recipe, layer }: (typeof cases)[number]): boolean =>
    recipe === "none" && layer !== "mlp";

  it.each([
    ...cases.filter(isPlain),
    ...sampleCases(
      cases.filter((parallelCase) => !isPlain(parallelCase)),
      1,
    ),
  ])(
    "has the bits of a layer whose exchanges do not: $layer under $recipe, sequence $sequence",
    async ({ recipe, unit, layer, sequence }) => {
      const ranks = recipe.startsWith("block") ? RANKS : 3;
      const parallelCase: ParallelCase = {
        ...{ layer, recipe, ranks, sequence, pieces: 1, activation: "swiglu", normalization: "LayerNorm" },
        rows: ranks * 2 * unit,
        inFeatures: layer === "row" ? ranks * unit : 128,
        outFeatures: layer === "row" ? 128 : ranks * unit,
        ...{
          bias: true,
          dtype: "bf16",
          fuses: false,
          savesOriginal: false,
          delays: false,
          outlier: 1,
          seed: 7,
          overlap: false,
          rewrites: false,
          calls: ["alone", "alone"],
        },
      };
      const rankGroups = groups(ranks);
      const run = async (overlap: boolean) => {
        calls = 0;
        const results = await Promise.all(
          rankGroups.map((group) => resultsOfRank({ ...parallelCase, overlap }, group)),
        );
        return { results, calls };
      };
      const [wholeRun, cutRun] = [await run(false), await run(true)];
      for (const [rank, result] of cutRun.results.entries())
        expect(difference(result, wholeRun.results[rank] as typeof result), `rank ${rank}`).toBeUndefined();
      expect(cutRun.calls).toBeGreaterThan(wholeRun.calls);
    },
  );

  interface ExchangeCase {
    readonly rows: number;
    readonly overlap?: boolean;
    readonly parallelMode?: "column" | "row";
    readonly sequenceParallel?: boolean;
    readonly recipe?: Recipe;
  }
  /** The number of exchanges of a forward pass. */
  async function exchanges({ rows, recipe, ...layerCase }: ExchangeCase): Promise<number> {
    const rankGroups = groups(RANKS);
    calls = 0;
    const results = rankGroups.map((group) => {
      using scope = new Scope();
      const usual = { parallelMode: "column", sequenceParallel: true, bias: false } as const;
      using layer = new Linear(group.backend, 64, 64, { ...usual, ...layerCase, group });
      const columns = layerCase.parallelMode === "row" ? 64 / RANKS : 64;
      const x = new Variable(zeros(group.backend, "bf16", [rows, columns]), true);
      const y = autocast(recipe ? { recipe } : { enabled: false }, () => layer.forward(x));
      return scope.keep(y.tensor);
    });
    await Promise.all(results.map((result) => result.data()));
    for (const result of results) result.dispose();
    return calls;
  }

  it("has 8192 rows or more of a rank, unless its option says otherwise", async () => {
    for (const [layerCase, count] of [
      [{ rows: 8192 }, 2],
      [{ rows: 8191 }, 1],
      [{ rows: 8190 }, 1],
      [{ rows: 8192, overlap: false }, 1],
      [{ rows: 16, overlap: true }, 2],
      [{ rows: 15, overlap: true }, 1],
    ] as const)
      expect(await exchanges(layerCase), JSON.stringify(layerCase)).toBe(count);
  });

  it("has sequence parallelism and no scales of blocks, unless its option says otherwise", async () => {
    const [wholeForm, recipe] = [
      { parallelMode: "row", sequenceParallel: false } as const,
      new MXFP8BlockScaling(),
    ];
    for (const [layerCase, count] of [
      [{ rows: 8192, ...wholeForm }, 1],
      [{ rows: 64, ...wholeForm, overlap: true }, 2],
      [{ rows: 8192, recipe }, 1],
      [{ rows: 64, recipe, overlap: true }, 2],
      [{ rows: 16384, parallelMode: "row", recipe }, 1],
      [{ rows: 128, parallelMode: "row", recipe, overlap: true }, 2],
    ] as const)
      expect(
        await exchanges(layerCase),
        JSON.stringify({ ...layerCase, recipe: "recipe" in layerCase }),
      ).toBe(count);
  });

  it("does not cut a block", async () => {
    const recipe = new Float8BlockScaling({ xBlockScalingDim: 2, wBlockScalingDim: 1 });
    expect(await exchanges({ rows: 256, recipe, overlap: true })).toBe(2);
    expect(await exchanges({ rows: 128, recipe, overlap: true })).toBe(1);
  });

  const QUANTIZERS = {
    "NVFP4 with an amax of each row": new NVFP4Quantizer({ rowScaled: true }),
    "FP8 with a scale of each row": new Float8RowQuantizer({}),
    MXFP8: new MXFP8Quantizer(),
  };
  const custom = Object.entries(QUANTIZERS).flatMap(([name, quantizer]) =>
    (["column", "row"] as const).flatMap((mode) =>
      [true, false].map((sequence) => ({ name, quantizer, mode, sequence })),
    ),
  );
  it.each(custom)(
    "has the bits of a layer whose exchanges do not, and if divided by columns the bits of one rank: $mode under $name, sequence $sequence",
    async ({ quantizer, mode, sequence }) => {
      const recipe = new CustomRecipe({ quantizerFactory: () => quantizer });
      const [rows, inFeatures, outFeatures] = [64, 64, 128];
      const [values, grads] = [1, 2].map((seed) =>
        normal({ seed: BigInt(seed), offset: 0n }, rows * outFeatures, 1),
      );
      const run = async (rankGroups: readonly ProcessGroup[], overlap?: boolean) => {
        const keptTensors = rankGroups.map((group) => {
          using scope = new Scope();
          const options = {
            group,
            parallelMode: mode,
            sequenceParallel: sequence && group.size > 1,
            bias: false,
          } as const;
          const random = new RandomState(3n);
          using layer = new Linear(group.backend, inFeatures, outFeatures, { ...options, random, overlap });
          const partOf = (x: Float32Array, columns: number, heldDimension: "rows" | "columns" | "all") => {
            const count = (total: number, isDivided: boolean) => (isDivided ? total / group.size : total);
            const [sumRows, sumColumns] = [
              count(rows, heldDimension === "rows"),
              count(columns, heldDimension === "columns"),
            ];
            const [rowCount, columnCount] = [
              heldDimension === "rows" ? group.rank * sumRows : 0,
              heldDimension === "columns" ? group.rank * sumColumns : 0,
            ];
            const ownInput = Float32Array.from(
              { length: sumRows * sumColumns },
              (_, i) =>
                x[
                  (rowCount + Math.floor(i / sumColumns)) * columns + columnCount + (i % sumColumns)
                ] as number,
            );
            return wideTensor(group.backend, ownInput, [sumRows, sumColumns], "bf16");
          };
          const flow = sequence && group.size > 1 ? "rows" : "all";
          const x = new Variable(
            partOf(values as Float32Array, inFeatures, mode === "row" ? "columns" : flow),
            true,
          );
          const y = autocast({ recipe }, () => layer.forward(x));
          y.backward(partOf(grads as Float32Array, outFeatures, mode === "row" ? flow : "columns"));
          const results = [y.tensor, x.grad as Tensor, layer.weight.grad as Tensor].map((tensor) =>
            scope.keep(tensor.clone()),
          );
          x.zeroGrad();
          return results;
        });
        const results = await Promise.all(
          keptTensors.map(async (tensors) => Promise.all(tensors.map((x) => x.data()))),
        );
        for (const tensor of keptTensors.flat()) tensor.dispose();
        return results;
      };
      const all = groups(RANKS);
      const wholeResults = await run(all, false);
      expect(await run(all, true)).toEqual(wholeResults);
      if (mode === "row") return;
      const weights = (rankResults: typeof wholeResults) =>
        rankResults.flatMap(([, , weight]) => [...(weight as Uint16Array)]);
      expect(weights(wholeResults)).toEqual(weights(await run(groups(1))));
    },
  );

  it("needs a group", () => {
    const [group] = groups(1) as [ProcessGroup];
    const sizes = { rows: 16, from: 16, to: 16, middle: 16 };
    for (const [name, row] of rowsWhere(({ takes }) => takes.includes("overlap")))
      for (const overlap of [true, false])
        expect(() => row.build(group.backend, sizes, { overlap }), name).toThrow(
          expect.objectContaining({ code: "ARGUMENT", message: expect.stringContaining("overlap") }),
        );
  });
});

describe("concurrently with its products", () => {
  const EXCHANGED = ["none", "current", "block", "mxfp8", "nvfp4"] as const;
  let watched: WatchedGroup;
  beforeEach(async () => {
    watched = await watchedGroup();
  });
  afterEach(() => watched.dispose());

  /** Runs a layer forward and backward. Returns the record of both, and the live bytes at each product. */
  function trainLayer(mode: "column" | "row", recipe: RecipeName, overlap: boolean) {
    const { group, record, liveAtProducts } = watched;
    const { backend } = group;
    record.length = 0;
    liveAtProducts.length = 0;
    using _ = new Scope();
    const options = { group, parallelMode: mode, sequenceParallel: true, bias: false, overlap } as const;
    using layer = new Linear(backend, 512, 512, options);
    const x = new Variable(zeros(backend, "bf16", mode === "column" ? [256, 512] : [512, 256]), true);
    const ownRecipe = libraryRecipe(RECIPE_OPTIONS[recipe]);
    const y = autocast(ownRecipe ? { recipe: ownRecipe } : { enabled: false }, () => layer.forward(x));
    record.push("backward");
    y.backward(zeros(backend, "bf16", y.shape));
    // all except reductions of amaxes
    const events = record.filter((event) => event !== "main allReduce");
    const live = [...liveAtProducts];
    x.zeroGrad();
    layer.weight.zeroGrad();
    return { seen: events, live };
  }

  it.each(sampleCases(EXCHANGED, 1))(
    "a layer waits for an exchange just before the first use of the exchanged tensor: %s",
    (recipe) => {
      // block scales are converted to the GEMM's layout for each product, and the main stream waits there
      const wait = recipe === "none" || recipe === "current" ? "gemm" : "relayout";
      const products = [`wait for a use by ${wait}`, "main gemm", "main gemm"];
      const overlappedReduction = ["main gemm", "main gemm", "side reduceScatter"];
      expect(trainLayer("column", recipe, true).seen).toEqual([
        ...["side allGather", "side allGather", ...products, ...products],
        ...[
          "backward",
          "side allGather",
          ...overlappedReduction,
          ...overlappedReduction,
          "wait for a use by gemm",
          "main gemm",
        ],
      ]);
      // the rows of the gradient are gathered once, and a second time if its columnwise copy has other scales
      const isCopied = wait === "relayout";
      expect(trainLayer("row", recipe, true).seen.filter((event) => !event.startsWith("wait"))).toEqual([
        ...[...overlappedReduction, ...overlappedReduction, "backward", "side allGather", "side allGather"],
        ...(isCopied ? ["side allGather"] : []),
        ...["main gemm", "main gemm", "main gemm", "main gemm", "main gemm"],
      ]);
    },
  );

  it.each(sampleCases(EXCHANGED, 1, 1))(
    "memory that ranks exchange is freed without a wait, except at the last product: %s",
    (recipe) => {
      for (const mode of ["column", "row"] as const) {
        const { seen: events } = trainLayer(mode, recipe, true);
        // the last two are a wait for the exchange that the product needs, and the product
        expect(events.slice(0, -2)).not.toContain("wait for a free");
      }
    },
  );

  it("the rows of a gradient with square blocks are gathered at once, since both copies have the same codes", () => {
    const { seen: events } = trainLayer("row", "block, square gradients", true);
    expect(events.slice(events.indexOf("backward"))).toEqual([
      "backward",
      "main allGather",
      "main gemm",
      "main gemm",
    ]);
  });

  it.each(sampleCases(EXCHANGED, 1, 2))(
    "no product has more live memory than with unchunked exchanges, except the rows of a gather: %s",
    (recipe) => {
      for (const mode of ["column", "row"] as const) {
        const [wholeLive, cutLive] = [
          trainLayer(mode, recipe, false).live,
          trainLayer(mode, recipe, true).live,
        ];
        expect(Math.max(...cutLive)).toBeLessThanOrEqual(Math.max(...wholeLive) + 2 * 256 * 512 * 2);
      }
    },
  );
});
