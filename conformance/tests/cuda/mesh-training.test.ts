/**
 * Training runs on a mesh of ranks, whose backends share one GPU: the losses and parameters of all ranks have the hashes that the
 * reference recorded.
 */
import { describe, expect, it } from "vitest";
import { describeOnGpu, useGpuRanks } from "../harness/gpu/gpu.js";
import { meshSize, parallelSteps } from "../harness/training/parallel.js";
import {
  loadParallelRuns,
  planTitle,
  RECORDED_STEPS,
  RECORDS,
  type RecordName,
  selectRecordedHashes,
} from "../harness/training/parallel-recorded.js";

/** The number of steps that several ranks repeat. Ranks of other processes repeat the rest (scripts/parallel-runs.mjs). */
const STEPS: Readonly<Record<RecordName, number>> = {
  "training-parallel": 2,
  "training-copies": 2,
  "training-layers": 10,
};

/** The number of steps that are repeated. One rank is fast enough for all. */
const stepsOf = (name: RecordName, ranks: number): number => (ranks === 1 ? RECORDED_STEPS : STEPS[name]);

describeOnGpu("training on ranks that share a GPU", () => {
  const groups = useGpuRanks(Math.max(...loadParallelRuns().map(({ mesh }) => meshSize(mesh))));

  describe.each(RECORDS)("%s", (name) => {
    it.each(loadParallelRuns([name]).map((run) => [planTitle(run), run] as const))(
      "%s: the first steps have the recorded hashes",
      async (_, run) => {
        const ranks = meshSize(run.mesh);
        const steps = await parallelSteps(groups(ranks), run, stepsOf(name, ranks));
        const hashes = selectRecordedHashes(steps);
        expect(hashes).toEqual(run.hashes.slice(0, hashes.length));
      },
    );
  });
});
