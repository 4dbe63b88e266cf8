/** Recorded runs of parallel training on processes have the same hashes as on ranks of one process. */
import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { compileHarness } from "../../../scripts/compile-harness.mjs";
import { runJob } from "../../../scripts/parallel-runs.mjs";
import { draws, sampleCases } from "../harness/draws.js";
import { meshSize } from "../harness/training/parallel.js";
import { loadParallelRuns, planTitle } from "../harness/training/parallel-recorded.js";

const STEPS = draws(2, 1);
const DEADLINE_MS = 100_000;
const FOLDER = "out/training-processes";

/** One of each kind; conformance/tests/slow/parallel-training.test.ts runs all of them. */
const TITLES = [
  "mlp, nvfp4, DP 2",
  "mlp, block, TP 2, sequence parallel",
  "transformer, delayed, TP 2",
  "mlp in a pipeline, current, PP 2",
  "llama, mxfp8, CP 2",
  "gpt, delayed, TP 2",
  "transformer, bf16, DP 4",
  "sharded mlp, nvfp4, DP 4",
  "sharded transformer, delayed, DP 4",
  "transformer, current, TP 2 x DP 2",
];

const recordedRuns = loadParallelRuns().filter((run) => TITLES.includes(planTitle(run)));
let program = "";
beforeAll(async () => {
  program = await compileHarness(FOLDER);
});
afterAll(() => rmSync(new URL(`../../../${FOLDER}`, import.meta.url), { recursive: true, force: true }));

describe("training with ranks as processes gives the recorded hashes", () => {
  it.each(sampleCases([2, 4], 1))(
    "%i of them",
    async (ranks) => {
      const runsOfMesh = recordedRuns.filter((run) => meshSize(run.mesh) === ranks);
      expect(runsOfMesh.length).toBeGreaterThan(3);
      const runs = sampleCases(runsOfMesh, 1);
      const titles = runs.map(planTitle);
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
          title: planTitle(run),
          hashes: run.hashes.slice(0, STEPS),
          transport: "host",
        })),
      );
    },
    DEADLINE_MS + 10_000,
  );

  const REFUSALS = [
    [["--only", "zzz"], 'no recorded run of at most 4 ranks has "zzz" in its title'],
    [["--ranks", "1", "--only", "TP 2"], "no recorded run of at most 1 ranks"],
    [["--ranks", "two"], "--ranks is two; give a whole number from 1"],
    [["--steps", "0"], "--steps is 0; give a whole number from 1"],
    [["--steps", "101"], "--steps is 101; 100 are recorded"],
    [["--backend", "foo"], "--backend is foo; give wasm or cuda"],
    [["--bogus"], "Unknown option '--bogus'"],
  ] as const;
  it.each(sampleCases<readonly [readonly string[], string]>(REFUSALS, 1))(
    "and the script that compares them refuses %j, with which it would compare nothing",
    (args, reason) => {
      const script = fileURLToPath(new URL("../../../scripts/parallel-runs.mjs", import.meta.url));
      const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], { encoding: "utf8" });
      expect([status, stdout]).toEqual([2, ""]);
      expect(stderr).toMatch(/^parallel-runs: .*\n$/);
      expect(stderr).toContain(reason);
    },
  );

  it("reports a run that is not recorded by its name", () => {
    expect(recordedRuns.map(planTitle).sort()).toEqual([...TITLES].sort());
  });
});
