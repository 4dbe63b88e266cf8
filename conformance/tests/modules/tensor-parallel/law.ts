/** The law of divided layers: each rank's results are its parts of the results of the model on one rank. */
import { expect } from "vitest";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import type { DatapathFamily } from "../../../../src/formats/datapath.js";
import { difference } from "../../harness/step/seen.js";
import { type FullResults, modelResults, type ParallelCase, resultsOfRank } from "./case.js";
import { partOf } from "./ranks.js";

/** The results of the model, by case. The model takes longer than the layer, and scripts/mutate runs each case many times. */
const knownResults = new WeakMap<ParallelCase, Map<DatapathFamily, FullResults>>();

function fullResultOf(parallelCase: ParallelCase, datapath: DatapathFamily): FullResults {
  const resultsOfCase = knownResults.get(parallelCase) ?? new Map<DatapathFamily, FullResults>();
  knownResults.set(parallelCase, resultsOfCase);
  const fullResult = resultsOfCase.get(datapath) ?? modelResults(parallelCase, datapath);
  resultsOfCase.set(datapath, fullResult);
  return fullResult;
}

export async function assertRanksAgree(
  parallelCase: ParallelCase,
  groups: readonly ProcessGroup[],
  datapath: DatapathFamily,
): Promise<void> {
  const fullResult = fullResultOf(parallelCase, datapath);
  const results = await Promise.all(groups.map((group) => resultsOfRank(parallelCase, group)));
  for (const [rank, result] of results.entries()) {
    const expected = [...fullResult].map(([name, { x, held: heldDimension, pieceCount }]) => {
      const division = {
        ranks: parallelCase.ranks,
        mode: "column",
        pieces: pieceCount,
        sequence: parallelCase.sequence,
      } as const;
      return [name, partOf(x, heldDimension, division, rank)] as const;
    });
    expect(
      difference(result, new Map(expected)),
      `rank ${rank} of ${JSON.stringify(parallelCase)}`,
    ).toBeUndefined();
  }
}
