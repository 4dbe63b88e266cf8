/** The recorded runs: the loss of every step, and a hash of it and of all state after it. */
import { readFileSync } from "node:fs";
import { RECIPE_NAMES, type RecipeName, STEPS, TASKS, type TaskName, type TrainingRun } from "./run.js";

export interface RecordedRun {
  readonly task: TaskName;
  readonly recipe: RecipeName;
  readonly losses: readonly number[];
  readonly hashes: readonly string[];
}

export interface RecordedRuns {
  readonly origin: { readonly project: string; readonly version: string };
  readonly runs: readonly RecordedRun[];
}

export const RUNS_PATH = new URL("../../vectors/training.json", import.meta.url);

export function loadRuns(path: URL | string = RUNS_PATH): RecordedRuns {
  return JSON.parse(readFileSync(path, "utf8")) as RecordedRuns;
}

/** Every task under every recipe. */
export const ALL_RUNS = (Object.keys(TASKS) as TaskName[]).flatMap((task) =>
  RECIPE_NAMES.map((recipe) => ({ task, recipe, steps: STEPS[task] })),
);

export function recordedRun(runs: RecordedRuns, task: TaskName, recipe: RecipeName): RecordedRun {
  const found = runs.runs.find((each) => each.task === task && each.recipe === recipe);
  if (!found) throw new Error(`no run of ${task} under ${recipe} is recorded; record them anew`);
  return found;
}

/** The next `steps` steps of a run, as they are recorded. */
export function stepsOf(run: TrainingRun, steps: number): Pick<RecordedRun, "losses" | "hashes"> {
  const made = Array.from({ length: steps }, () => run.advance());
  return { losses: made.map(({ loss }) => loss), hashes: made.map(({ hash }) => hash) };
}

/** The part of a recorded run from step `begin` to step `end`. */
export function partOf(run: RecordedRun, begin: number, end: number): Pick<RecordedRun, "losses" | "hashes"> {
  return { losses: run.losses.slice(begin, end), hashes: run.hashes.slice(begin, end) };
}
