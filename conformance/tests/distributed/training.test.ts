/**
 * Recorded runs of 100 steps on meshes of ranks: their beginnings, replayed. `RECORD=1` records them anew.
 * conformance/tests/slow/parallel-training.test.ts replays them whole.
 */
import { writeFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { parallelSteps, ranksOf } from "../harness/training/parallel.js";
import {
  hashesAt,
  loadParallelRuns,
  PARALLEL_PLANS,
  PARALLEL_VECTORS,
  RECORDED_STEPS,
  type RecordedParallelRun,
  titleOf,
} from "../harness/training/parallel-recorded.js";
import { useRanks } from "./parallel/ranks.js";

const RECORDS = process.env.RECORD === "1";
const STEPS = RECORDS ? RECORDED_STEPS : 2;
const recorded = RECORDS ? [] : loadParallelRuns();
const made: RecordedParallelRun[] = [];
const groups = useRanks(Math.max(...PARALLEL_PLANS.map(({ mesh }) => ranksOf(mesh))), "hopper");

afterAll(() => {
  if (RECORDS) {
    const lines = made.map((each) => ` ${JSON.stringify(each)}`);
    writeFileSync(PARALLEL_VECTORS, `{"runs": [\n${lines.join(",\n")}\n]}\n`);
  }
});

describe("100 steps of networks on a mesh", () => {
  it.each(PARALLEL_PLANS.map((plan) => [titleOf(plan), plan] as const))(
    "%s",
    async (_, plan) => {
      const steps = await parallelSteps(groups(ranksOf(plan.mesh)), plan, STEPS);
      if (RECORDS) {
        made.push({ ...plan, hashes: hashesAt(steps) });
        return;
      }
      const run = recorded.find((each) => titleOf(each) === titleOf(plan));
      if (!run) throw new Error("this run is not recorded; record all anew by RECORD=1");
      expect(hashesAt(steps)).toEqual(run.hashes.slice(0, STEPS));
      expect(run.hashes).toHaveLength(hashesAt(Array.from({ length: RECORDED_STEPS }, () => "")).length);
    },
    RECORDS ? 600_000 : undefined,
  );
});

it("no other run is recorded", () => {
  expect(recorded.map(titleOf)).toEqual(RECORDS ? [] : PARALLEL_PLANS.map(titleOf));
});
