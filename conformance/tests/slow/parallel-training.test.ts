/**
 * Runs every recorded run on a mesh of ranks to its end, on ranks of one process, and its first ten steps on processes.
 * PARALLEL_RUNS=task/recipe,... selects runs.
 */
import { rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { compileHarness } from "../../../scripts/compile-harness.mjs";
import { runJob } from "../../../scripts/parallel-runs.mjs";
import { loopbackGroup } from "../../../src/collectives/loopback/loopback.js";
import { meshSize, parallelSteps } from "../harness/training/parallel.js";
import {
  loadParallelRuns,
  planTitle,
  RECORDED_STEPS,
  selectRecordedHashes,
} from "../harness/training/parallel-recorded.js";

const { PARALLEL_RUNS } = process.env;
const runs = loadParallelRuns()
  .filter(({ task, recipe }) => !PARALLEL_RUNS || PARALLEL_RUNS.split(",").includes(`${task}/${recipe}`))
  .map((run) => [planTitle(run), run] as const);

describe("networks on a mesh of ranks of one process", () => {
  it.each(runs)("%s is as recorded", async (_, run) => {
    const groups = await loopbackGroup(meshSize(run.mesh), { datapath: "hopper" });
    const steps = await parallelSteps(groups, run, RECORDED_STEPS);
    for (const group of groups) await group.dispose();
    expect(selectRecordedHashes(steps)).toEqual(run.hashes);
  });
});

describe("networks on a mesh of processes", () => {
  const FOLDER = "out/slow-training-processes";
  const STEPS = 10;
  let program = "";
  beforeAll(async () => {
    program = await compileHarness(FOLDER);
  });
  afterAll(() => rmSync(new URL(`../../../${FOLDER}`, import.meta.url), { recursive: true, force: true }));

  it.each(runs)("%s is as recorded", async (title, run) => {
    const { status, said, stderr } = await runJob(program, {
      ranks: meshSize(run.mesh),
      backend: "wasm",
      steps: STEPS,
      titles: [title],
      timeoutMs: 600_000,
    });
    expect([status, stderr]).toEqual([0, ""]);
    expect(said).toMatchObject([{ title, hashes: run.hashes.slice(0, 3) }]);
  });
});
