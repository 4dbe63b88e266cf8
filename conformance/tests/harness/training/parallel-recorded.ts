/** The recorded runs of networks on meshes of ranks. */
import { readFileSync } from "node:fs";
import type { MeshSizes } from "../../../../src/distributed/mesh.js";
import type { ParallelPlan, ParallelTaskName } from "./parallel.js";
import { RECIPE_NAMES } from "./run.js";

export interface RecordedParallelRun extends ParallelPlan {
  /** For steps 1, 2, 10, 20, …: the hash of the losses of all ranks up to that step, and of their parameters. */
  readonly hashes: readonly string[];
}

export const PARALLEL_VECTORS = new URL("../../../vectors/training-parallel.json", import.meta.url);
export const RECORDED_STEPS = 100;

export function loadParallelRuns(): readonly RecordedParallelRun[] {
  const { runs } = JSON.parse(readFileSync(PARALLEL_VECTORS, "utf8")) as {
    readonly runs: readonly RecordedParallelRun[];
  };
  return runs;
}

interface Place {
  readonly mesh: MeshSizes;
  readonly sequence: boolean;
}

const DIVIDED: readonly Place[] = [
  ...[2, 4].flatMap((tp) => [false, true].map((sequence) => ({ mesh: { tp }, sequence }))),
  { mesh: { tp: 2, dp: 2 }, sequence: false },
];
const STAGES: readonly Place[] = [{ mesh: { pp: 2 }, sequence: false }];
const POSITIONS: readonly Place[] = [{ mesh: { cp: 2 }, sequence: false }];

/** The meshes of each task. */
const PLACES: Readonly<Record<ParallelTaskName, readonly Place[]>> = {
  mlp: DIVIDED,
  transformer: DIVIDED,
  "mlp in a pipeline": STAGES,
  "transformer in a pipeline": STAGES,
  "transformer by positions": POSITIONS,
};

/** Every task under every recipe on every mesh. */
export const PARALLEL_PLANS: readonly ParallelPlan[] = Object.entries(PLACES).flatMap(([task, places]) =>
  RECIPE_NAMES.flatMap((recipe) =>
    places.map((place) => ({ task: task as ParallelTaskName, recipe, ...place })),
  ),
);

export function titleOf({ task, recipe, mesh, sequence }: ParallelPlan): string {
  const axes = Object.entries(mesh).map(([axis, size]) => `${axis.toUpperCase()} ${size}`);
  return `${task}, ${recipe}, ${axes.join(" x ")}${sequence ? ", sequence parallel" : ""}`;
}

/** Selects the hashes that are recorded, of the hashes of the first steps. */
export function hashesAt(steps: readonly string[]): readonly string[] {
  return steps.filter((_, i) => i < 2 || (i + 1) % 10 === 0);
}
