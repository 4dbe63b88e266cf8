/** A divided layer gives the same bits as the model on one rank, whose products use the plans that the layer declares. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { draws, sampleCases } from "../harness/draws.js";
import {
  CUSTOM_RECIPE_NAMES,
  DIVIDED_LAYER_RECIPE_NAMES,
  ROW_SCALED,
} from "../harness/step/library-recipes.js";
import { parallelCase, resultsOfRank } from "./tensor-parallel/case.js";
import { assertRanksAgree } from "./tensor-parallel/law.js";
import { useRanks } from "./tensor-parallel/ranks.js";

/** The datapaths to test. The oracle takes about ten times as long for Hopper's. */
const DATAPATHS = [
  { datapath: "exact", most: 8, numRuns: draws(3, 1) },
  { datapath: "hopper", most: 4, numRuns: 1 },
] as const;

describe.each(DATAPATHS)("on the datapath $datapath", ({ datapath, most: maxRanks, numRuns }) => {
  const groups = useRanks(maxRanks, datapath);

  it.each(
    sampleCases(
      ["none", ...DIVIDED_LAYER_RECIPE_NAMES, ...CUSTOM_RECIPE_NAMES] as const,
      datapath === "exact" ? 3 : 2,
      maxRanks,
    ),
  )("%s: any layer, size and number of ranks", async (name) => {
    await fc.assert(
      fc.asyncProperty(parallelCase(maxRanks, [name]), (parallelCase) =>
        assertRanksAgree(parallelCase, groups(parallelCase.ranks), datapath),
      ),
      {
        // the oracle takes long for products with 128 x 128 blocks
        numRuns: name.startsWith("block") ? 1 : numRuns,
        endOnFailure: true,
      },
    );
  });

  it("refuses amaxes of rows, by name", async () => {
    const dividedCases = parallelCase(maxRanks, [ROW_SCALED]).filter(({ ranks }) => ranks > 1);
    await fc.assert(
      fc.asyncProperty(dividedCases, async (parallelCase) => {
        const results = groups(parallelCase.ranks).map(async (group) => resultsOfRank(parallelCase, group));
        for (const result of await Promise.allSettled(results))
          expect(result).toMatchObject({ status: "rejected", reason: { code: "ARGUMENT" } });
      }),
      { numRuns: draws(30), endOnFailure: true },
    );
  });
});
