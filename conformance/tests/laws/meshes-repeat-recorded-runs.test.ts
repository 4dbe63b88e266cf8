/**
 * Replays the first steps of recorded runs of 100 steps on meshes of ranks. `RECORD=training-copies` records that file again,
 * `RECORD=1` all files. conformance/tests/slow/parallel-training.test.ts replays all steps.
 */
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { meshSize, type ParallelPlan, parallelSteps } from "../harness/training/parallel.js";
import {
  listPlans,
  loadParallelRuns,
  planTitle,
  RECORDED_STEPS,
  RECORDS,
  type RecordedParallelRun,
  type RecordName,
  recordPath,
  selectRecordedHashes,
} from "../harness/training/parallel-recorded.js";
import { useRanks } from "../modules/tensor-parallel/ranks.js";

const { RECORD } = process.env;
const plans = RECORDS.flatMap(listPlans);
const groups = useRanks(Math.max(...plans.map(({ mesh }) => meshSize(mesh))), "hopper");

/** The number of steps that this run replays. A full run replays more steps of layers, which recompute and drop elements. */
const stepsOf = (name: RecordName): number => (IS_FULL && name === "training-layers" ? 10 : 2);

describe.each(RECORDS)("100 steps of networks on a mesh: %s", (name) => {
  const isRecording = RECORD === "1" || RECORD === name;
  const steps = isRecording ? RECORDED_STEPS : stepsOf(name);
  const recordedRuns = isRecording ? [] : loadParallelRuns([name]);
  const newRuns: RecordedParallelRun[] = [];
  const plans = listPlans(name);
  const titledPlans = plans.map((plan) => [planTitle(plan), plan] as const);

  it.each(isRecording ? titledPlans : sampleCases(titledPlans, 3, RECORDS.indexOf(name)))(
    "%s",
    async (_, plan) => {
      const hashes = selectRecordedHashes(await parallelSteps(groups(meshSize(plan.mesh)), plan, steps));
      if (isRecording) {
        newRuns.push({ ...plan, hashes });
        const lines = newRuns.map((newRun) => ` ${JSON.stringify(newRun)}`);
        writeFileSync(recordPath(name), `{"runs": [\n${lines.join(",\n")}\n]}\n`);
        return;
      }
      const run = recordedRuns.find((recordedRun) => planTitle(recordedRun) === planTitle(plan));
      if (!run) throw new Error("this run is not recorded; record all anew by RECORD=1");
      expect(hashes).toEqual(run.hashes.slice(0, hashes.length));
      expect(run.hashes).toHaveLength(
        selectRecordedHashes(Array.from({ length: RECORDED_STEPS }, () => "")).length,
      );
    },
    isRecording ? 1_200_000 : undefined,
  );

  it("the recorded runs are exactly those of the table", () => {
    expect(recordedRuns.map(planTitle)).toEqual(isRecording ? [] : plans.map(planTitle));
  });
});

it("runs of sharded parameters have the recorded hashes of data parallelism", () => {
  const isOfCopies = ({ mesh }: ParallelPlan): boolean => Object.keys(mesh).join() === "dp";
  const runsOfTask = (task: string) =>
    loadParallelRuns().filter((run) => run.task === task && isOfCopies(run));
  for (const task of ["mlp", "transformer"]) {
    expect(runsOfTask(task)).not.toHaveLength(0);
    expect(runsOfTask(`sharded ${task}`).map(({ hashes }) => hashes)).toEqual(
      runsOfTask(task).map(({ hashes }) => hashes),
    );
  }
});
