/** The law of divided layers: each rank's results are its parts of the results of the model on one rank. */
import { expect } from "vitest";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import type { DatapathFamily } from "../../../../src/formats/datapath.js";
import { difference } from "../../harness/step/seen.js";
import { modelled, type ParallelCase, ranked, type Whole } from "./case.js";
import { partOf } from "./ranks.js";

/** The results of the model, by case. The model takes longer than the layer, and scripts/mutate runs each case many times. */
const known = new WeakMap<ParallelCase, Map<DatapathFamily, Whole>>();

function wholeOf(drawn: ParallelCase, datapath: DatapathFamily): Whole {
  const of = known.get(drawn) ?? new Map<DatapathFamily, Whole>();
  known.set(drawn, of);
  const whole = of.get(datapath) ?? modelled(drawn, datapath);
  of.set(datapath, whole);
  return whole;
}

export async function assertShared(
  drawn: ParallelCase,
  groups: readonly ProcessGroup[],
  datapath: DatapathFamily,
): Promise<void> {
  const whole = wholeOf(drawn, datapath);
  const results = await Promise.all(groups.map((group) => ranked(drawn, group)));
  for (const [rank, seen] of results.entries()) {
    const expected = [...whole].map(([name, { x, held, by }]) => {
      const divided = { ranks: drawn.ranks, mode: "column", pieces: by, sequence: drawn.sequence } as const;
      return [name, partOf(x, held, divided, rank)] as const;
    });
    expect(difference(seen, new Map(expected)), `rank ${rank} of ${JSON.stringify(drawn)}`).toBeUndefined();
  }
}
