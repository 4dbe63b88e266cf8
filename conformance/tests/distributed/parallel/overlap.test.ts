/** Exchanges that are cut into pieces give the same bits as whole ones, and layers cut them when they say so. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ProcessGroup } from "../../../../src/distributed/group.js";
import { LayerNormLinear } from "../../../../src/modules/layer-norm-linear.js";
import { LayerNormMLP } from "../../../../src/modules/layer-norm-mlp.js";
import { Linear } from "../../../../src/modules/linear.js";
import { zeros } from "../../../../src/ops/create.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { difference } from "../../harness/step/seen.js";
import { type ParallelCase, ranked } from "./case.js";
import { useRanks } from "./ranks.js";

/** The methods by which rows are exchanged, and the rows that rank 0 of `size` has given to each call. */
const EXCHANGES = ["allGather", "allGatherCoalesced", "reduceScatter", "allReduce"] as const;

const RANKS = 2;
const groups = useRanks(3, "exact", 1000);
let calls = 0;

beforeEach(() => {
  calls = 0;
  for (const name of EXCHANGES) {
    const own = ProcessGroup.prototype[name] as (...given: unknown[]) => unknown;
    vi.spyOn(ProcessGroup.prototype, name).mockImplementation(function (
      this: ProcessGroup,
      ...given: unknown[]
    ) {
      const isMaximum = (given[1] as { reduction?: string } | undefined)?.reduction === "max";
      if (this.rank === 0 && !isMaximum) calls++;
      return own.apply(this, given) as never;
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

/** The exchanges of two steps: of a layer divided by columns, by rows, and of one with both. */
const LAYERS = ["column", "row", "mlp"] as const;

describe("a layer whose exchanges overlap its products", () => {
  const cases = RECIPES.flatMap(([recipe, unit]) =>
    LAYERS.flatMap((layer) => [true, false].map((sequence) => ({ recipe, unit, layer, sequence }))),
  );

  it.each(cases)(
    "has the bits of one whose exchanges do not: $layer under $recipe, sequence $sequence",
    async ({ recipe, unit, layer, sequence }) => {
      const ranks = recipe.startsWith("block") ? RANKS : 3;
      const drawn: ParallelCase = {
        ...{ layer, recipe, ranks, sequence, pieces: 1, activation: "swiglu", normalization: "LayerNorm" },
        rows: ranks * 2 * unit,
        inFeatures: layer === "row" ? ranks * unit : 128,
        outFeatures: layer === "row" ? 128 : ranks * unit,
        ...{
          bias: true,
          dtype: "bf16",
          fuses: false,
          savesOriginal: false,
          outlier: 1,
          seed: 7,
          overlap: false,
        },
      };
      const all = groups(ranks);
      const run = async (overlap: boolean) => {
        calls = 0;
        const results = await Promise.all(all.map((group) => ranked({ ...drawn, overlap }, group)));
        return { results, calls };
      };
      const [whole, cut] = [await run(false), await run(true)];
      for (const [rank, seen] of cut.results.entries())
        expect(difference(seen, whole.results[rank] as typeof seen), `rank ${rank}`).toBeUndefined();
      expect(cut.calls).toBeGreaterThan(whole.calls);
    },
  );

  it("is one with 8192 rows or more of a rank, unless its option says otherwise", async () => {
    const exchanges = async (rows: number, overlap?: boolean): Promise<number> => {
      const all = groups(RANKS);
      calls = 0;
      const results = all.map((group) => {
        using scope = new Scope();
        const options = {
          group,
          parallelMode: "column",
          sequenceParallel: true,
          overlap,
          bias: false,
        } as const;
        using layer = new Linear(group.backend, 16, 32, options);
        return scope.keep(layer.forward(new Variable(zeros(group.backend, "bf16", [rows, 16]), true)).tensor);
      });
      await Promise.all(results.map((each) => each.data()));
      for (const each of results) each.dispose();
      return calls;
    };
    expect([await exchanges(8192), await exchanges(8191), await exchanges(8190)]).toEqual([2, 1, 1]);
    expect([await exchanges(8192, false), await exchanges(16, true), await exchanges(15, true)]).toEqual([
      1, 2, 1,
    ]);
  });

  it("needs a group", () => {
    const [group] = groups(1) as [ProcessGroup];
    for (const make of [
      () => new Linear(group.backend, 16, 16, { overlap: true }),
      () => new LayerNormLinear(group.backend, 16, 16, { overlap: false }),
      () => new LayerNormMLP(group.backend, 16, 16, { overlap: true }),
    ])
      expect(make).toThrow(
        expect.objectContaining({ code: "ARGUMENT", message: expect.stringContaining("overlap") }),
      );
  });
});
