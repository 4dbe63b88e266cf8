/** The recorded runs: the loss of every step, and a hash of the loss and of all state after it. */
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Backend } from "../../../../src/backends/backend.js";
import { RECIPE_NAMES, type RecipeName, STEPS, TASKS, type TaskName, TrainingRun } from "./run.js";

export interface RecordedRun {
  readonly task: TaskName;
  readonly recipe: RecipeName;
  readonly losses: readonly number[];
  readonly hashes: readonly string[];
}

export interface RecordedRuns {
  readonly origin: { readonly project: string; readonly version: string };
  readonly training: readonly RecordedRun[];
}

const RUNS_PATH = new URL("../../../vectors/training.json", import.meta.url);

export function loadRuns(path: URL | string = RUNS_PATH): RecordedRuns {
  return JSON.parse(readFileSync(path, "utf8")) as RecordedRuns;
}

/** Every task under every recipe. */
export const ALL_RUNS = (Object.keys(TASKS) as TaskName[]).flatMap((task) =>
  RECIPE_NAMES.map((recipe) => ({ task, recipe, steps: STEPS[task] })),
);

export function recordedRun({ training }: RecordedRuns, task: TaskName, recipe: RecipeName): RecordedRun {
  const match = training.find((each) => each.task === task && each.recipe === recipe);
  if (!match) throw new Error(`no run of ${task} under ${recipe} is recorded; record them anew`);
  return match;
}

/** Runs the next `steps` steps; returns them in the form of the record. */
export function runSteps(run: TrainingRun, steps: number): Pick<RecordedRun, "losses" | "hashes"> {
  const results = Array.from({ length: steps }, () => run.advance());
  return { losses: results.map(({ loss }) => loss), hashes: results.map(({ hash }) => hash) };
}

/** The steps from `begin` to below `end` of a recorded run. */
export function selectSteps(
  run: RecordedRun,
  begin: number,
  end: number,
): Pick<RecordedRun, "losses" | "hashes"> {
  return { losses: run.losses.slice(begin, end), hashes: run.hashes.slice(begin, end) };
}

/**
 * The first `end` steps of a run. The steps before `middle` run on one backend. Then another backend resumes from a
 * checkpoint.
 */
export async function resumedSteps(
  backends: readonly [first: Backend, second: Backend],
  { task, recipe }: Pick<RecordedRun, "task" | "recipe">,
  { middle, end }: { readonly middle: number; readonly end: number },
): Promise<Pick<RecordedRun, "losses" | "hashes">> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-"));
  const path = join(folder, "middle.safetensors");
  try {
    using first = new TrainingRun(backends[0], task, recipe);
    const firstSteps = runSteps(first, middle);
    await first.save(path);
    using second = new TrainingRun(backends[1], task, recipe);
    await second.resume(path);
    const laterSteps = runSteps(second, end - middle);
    return {
      losses: [...firstSteps.losses, ...laterSteps.losses],
      hashes: [...firstSteps.hashes, ...laterSteps.hashes],
    };
  } finally {
    await rm(folder, { recursive: true });
  }
}
