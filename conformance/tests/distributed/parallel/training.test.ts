/**
 * Replays the first steps of recorded training runs (20 steps) with a network divided among ranks. `RECORD=1` records them again.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { loopbackGroup } from "../../../../src/distributed/loopback/loopback.js";
import { type ParallelRun, parallelSteps } from "../../harness/training/parallel.js";
import { RECIPE_NAMES } from "../../harness/training/run.js";

const VECTORS = new URL("../../../vectors/training-parallel.json", import.meta.url);
const RECORDED = 20;
const RECORDS = process.env.RECORD === "1";
const STEPS = RECORDS ? RECORDED : 2;

const recorded: ParallelRun[] = existsSync(VECTORS)
  ? (JSON.parse(readFileSync(VECTORS, "utf8")) as { readonly runs: ParallelRun[] }).runs
  : [];
const made: ParallelRun[] = [];

const cases = RECIPE_NAMES.flatMap((recipe) =>
  [2, 4].flatMap((ranks) => [false, true].map((sequence) => ({ recipe, ranks, sequence }))),
);

describe("20 steps of tensor-parallel training", () => {
  it.each(cases)("$recipe on $ranks ranks, sequence parallel: $sequence", async (plan) => {
    const groups = await loopbackGroup(plan.ranks, { datapath: "hopper" });
    const hashes = await parallelSteps(groups, plan, STEPS);
    for (const group of groups) await group.dispose();
    if (RECORDS) {
      made.push({ ...plan, hashes });
      writeFileSync(VECTORS, `${JSON.stringify({ runs: made }, null, 1)}\n`);
      return;
    }
    const { recipe, ranks, sequence } = plan;
    const found = recorded.find(
      (each) => each.recipe === recipe && each.ranks === ranks && each.sequence === sequence,
    );
    if (!found) throw new Error("this run is not recorded; record all anew by RECORD=1");
    expect(hashes).toEqual(found.hashes.slice(0, STEPS));
    expect(found.hashes).toHaveLength(RECORDED);
  });
});
