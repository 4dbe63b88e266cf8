/** Runs every recorded run on a mesh of ranks to its end. PARALLEL_RUNS=task/recipe,... selects runs. */
import { describe, expect, it } from "vitest";
import { loopbackGroup } from "../../../src/distributed/loopback/loopback.js";
import { parallelSteps, ranksOf } from "../harness/training/parallel.js";
import {
  hashesAt,
  loadParallelRuns,
  RECORDED_STEPS,
  titleOf,
} from "../harness/training/parallel-recorded.js";

const { PARALLEL_RUNS } = process.env;
const runs = loadParallelRuns().filter(
  ({ task, recipe }) => !PARALLEL_RUNS || PARALLEL_RUNS.split(",").includes(`${task}/${recipe}`),
);

describe("networks on a mesh of ranks of one process", () => {
  it.each(runs.map((run) => [titleOf(run), run] as const))("%s is as recorded", async (_, run) => {
    const groups = await loopbackGroup(ranksOf(run.mesh), { datapath: "hopper" });
    const steps = await parallelSteps(groups, run, RECORDED_STEPS);
    for (const group of groups) await group.dispose();
    expect(hashesAt(steps)).toEqual(run.hashes);
  });
});
