/** A layer that ranks share gives the bits of one rank whose products have the plans that the layer declares. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { STANDARD_NAMES } from "../../harness/step/library-recipes.js";
import { difference } from "../../harness/step/seen.js";
import { modelled, type ParallelCase, parallelCase, ranked } from "./case.js";
import { partOf, useRanks } from "./ranks.js";

const MOST = 8;

describe.each(["exact", "hopper"] as const)("on the datapath %s", (datapath) => {
  const groups = useRanks(MOST, datapath);

  async function assertShared(drawn: ParallelCase): Promise<void> {
    const whole = modelled(drawn, datapath);
    const results = await Promise.all(groups(drawn.ranks).map((group) => ranked(drawn, group)));
    for (const [rank, seen] of results.entries()) {
      const wanted = [...whole].map(([name, { x, held, by }]) => {
        const divided = { ranks: drawn.ranks, mode: "column", pieces: by, sequence: drawn.sequence } as const;
        return [name, partOf(x, held, divided, rank)] as const;
      });
      expect(difference(seen, new Map(wanted)), `rank ${rank} of ${JSON.stringify(drawn)}`).toBeUndefined();
    }
  }

  it.each(["none", ...STANDARD_NAMES, "custom"] as const)(
    "%s: any layer, size and number of ranks",
    async (name) => {
      const numRuns = datapath === "exact" ? 3 : 1;
      await fc.assert(fc.asyncProperty(parallelCase(MOST, [name]), assertShared), {
        numRuns,
        endOnFailure: true,
      });
    },
  );
});
