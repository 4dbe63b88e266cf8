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

/** The number of steps that are repeated. Ranks of other processes repeat the rest (scripts/parallel-runs.mjs). */
const STEPS: Readonly<Record<RecordName, number>> = {
  "training-parallel": 2,
  "training-copies": 2,
  "training-layers": RECORDED_STEPS,
};

describeOnGpu("training on ranks that share a GPU", () => {
  const groups = useGpuRanks(Math.max(...loadParallelRuns().map(({ mesh }) => meshSize(mesh))));

  describe.each(RECORDS)("%s", (name) => {
    it.each(loadParallelRuns([name]).map((run) => [planTitle(run), run] as const))(
      "%s: the first steps have the recorded hashes",
      async (_, run) => {
        const steps = await parallelSteps(groups(meshSize(run.mesh)), run, STEPS[name]);
        const hashes = selectRecordedHashes(steps);
        expect(hashes).toEqual(run.hashes.slice(0, hashes.length));
      },
    );
  });
});
