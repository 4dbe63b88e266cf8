/** The recorded runs of networks on meshes of ranks. */
import { readFileSync } from "node:fs";
import type { MeshSizes } from "../../../../src/collectives/mesh.js";
import type { ParallelPlan, ParallelTaskName } from "./parallel.js";
import { RECIPE_NAMES } from "./run.js";

export interface RecordedParallelRun extends ParallelPlan {
  /** For steps 1, 2, 10, 20, …: the hash of the losses of all ranks up to that step, and of their parameters. */
  readonly hashes: readonly string[];
}

export const RECORDED_STEPS = 100;

/** The files of recorded runs: with divided layers, with replicas (whole or sharded), and with transformer layers. */
export const RECORDS = ["training-parallel", "training-copies", "training-layers"] as const;
export type RecordName = (typeof RECORDS)[number];

/** The path of a file of recorded runs. */
export function recordPath(name: RecordName): URL {
  return new URL(`../../../vectors/${name}.json`, import.meta.url);
}

export function loadParallelRuns(names: readonly RecordName[] = RECORDS): readonly RecordedParallelRun[] {
  return names.flatMap((name) => {
    const { runs } = JSON.parse(readFileSync(recordPath(name), "utf8")) as {
      readonly runs: readonly RecordedParallelRun[];
    };
    return runs;
  });
}

interface MeshPlan {
  readonly mesh: MeshSizes;
  readonly sequence: boolean;
}

const LAYER_MESHES: readonly MeshPlan[] = [
  ...[2, 4].flatMap((tp) => [false, true].map((sequence) => ({ mesh: { tp }, sequence }))),
  { mesh: { tp: 2, dp: 2 }, sequence: false },
];
const PIPELINE_MESHES: readonly MeshPlan[] = [{ mesh: { pp: 2 }, sequence: false }];

/** One rank, and layers that are divided by heads or by positions. */
const transformerMeshes = (sequence: boolean): readonly MeshPlan[] => [
  { mesh: { tp: 1 }, sequence: false },
  { mesh: { tp: 2 }, sequence },
  { mesh: { cp: 2 }, sequence: false },
];

const REPLICA_MESHES: readonly MeshPlan[] = [2, 4].map((dp) => ({ mesh: { dp }, sequence: false }));

type TaskMeshes = readonly (readonly [task: ParallelTaskName, places: readonly MeshPlan[]])[];

/** The meshes of each task, by record file. */
const MESHES: Readonly<Record<RecordName, TaskMeshes>> = {
  "training-parallel": [
    ["mlp", LAYER_MESHES],
    ["transformer", LAYER_MESHES],
    ["mlp in a pipeline", PIPELINE_MESHES],
    ["transformer in a pipeline", PIPELINE_MESHES],
  ],
  "training-copies": [
    ["mlp", REPLICA_MESHES],
    ["transformer", REPLICA_MESHES],
    ["sharded mlp", REPLICA_MESHES],
    ["sharded transformer", REPLICA_MESHES],
  ],
  "training-layers": [
    ["llama", transformerMeshes(true)],
    ["gpt", transformerMeshes(false)],
  ],
};

/** Every task under every recipe on every mesh, by record file. */
export function listPlans(name: RecordName): readonly ParallelPlan[] {
  return MESHES[name].flatMap(([task, meshPlans]) =>
    RECIPE_NAMES.flatMap((recipe) => meshPlans.map((meshPlan) => ({ task, recipe, ...meshPlan }))),
  );
}

export function planTitle({ task, recipe, mesh, sequence }: ParallelPlan): string {
  const axes = Object.entries(mesh).map(([axis, size]) => `${axis.toUpperCase()} ${size}`);
  return `${task}, ${recipe}, ${axes.join(" x ")}${sequence ? ", sequence parallel" : ""}`;
}

/** Selects the recorded steps from the hashes of the first steps. */
export function selectRecordedHashes(steps: readonly string[]): readonly string[] {
  return steps.filter((_, i) => i < 2 || (i + 1) % 10 === 0);
}
