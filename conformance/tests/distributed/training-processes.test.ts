/** Recorded runs of parallel training, as processes: the hashes are those of ranks of one process. */
import { rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { compileHarness } from "../../../scripts/compile-harness.mjs";
import { runJob } from "../../../scripts/parallel-runs.mjs";
import { ranksOf } from "../harness/training/parallel.js";
import { loadParallelRuns, titleOf } from "../harness/training/parallel-recorded.js";

const STEPS = 2;
const DEADLINE_MS = 100_000;
const FOLDER = "out/training-processes";

/** One of each kind; conformance/tests/slow/parallel-training.test.ts runs all of them. */
const TITLES = [
  "mlp, nvfp4, DP 2",
  "mlp, block, TP 2, sequence parallel",
  "transformer, delayed, TP 2",
  "mlp in a pipeline, current, PP 2",
  "transformer by positions, mxfp8, CP 2",
  "transformer, bf16, DP 4",
  "sharded mlp, nvfp4, DP 4",
  "sharded transformer, delayed, DP 4",
  "transformer, current, TP 2 x DP 2",
];

const recorded = loadParallelRuns().filter((run) => TITLES.includes(titleOf(run)));
let program = "";
beforeAll(async () => {
  program = await compileHarness(FOLDER);
});
afterAll(() => rmSync(new URL(`../../../${FOLDER}`, import.meta.url), { recursive: true, force: true }));

describe("training with ranks as processes gives the recorded hashes", () => {
  it.each([2, 4])(
    "%i of them",
    async (ranks) => {
      const runs = recorded.filter((run) => ranksOf(run.mesh) === ranks);
      expect(runs.length).toBeGreaterThan(3);
      const titles = runs.map(titleOf);
      const { status, said, stderr } = await runJob(program, {
        ranks,
        backend: "wasm",
        steps: STEPS,
        titles,
        timeoutMs: DEADLINE_MS,
      });
      expect([status, stderr]).toEqual([0, ""]);
      expect(said).toEqual(
        runs.map((run) => ({
          title: titleOf(run),
          hashes: run.hashes.slice(0, STEPS),
          transport: "host",
        })),
      );
    },
    DEADLINE_MS + 10_000,
  );

  it("reports a run that is not recorded by its name", () => {
    expect(recorded.map(titleOf).sort()).toEqual([...TITLES].sort());
  });
});
