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
export function recordOf(name: RecordName): URL {
  return new URL(`../../../vectors/${name}.json`, import.meta.url);
}

export function loadParallelRuns(names: readonly RecordName[] = RECORDS): readonly RecordedParallelRun[] {
  return names.flatMap((name) => {
    const { runs } = JSON.parse(readFileSync(recordOf(name), "utf8")) as {
      readonly runs: readonly RecordedParallelRun[];
    };
    return runs;
  });
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

/** One rank, and layers that are divided by heads or by positions. */
const layersOf = (sequence: boolean): readonly Place[] => [
  { mesh: { tp: 1 }, sequence: false },
  { mesh: { tp: 2 }, sequence },
  { mesh: { cp: 2 }, sequence: false },
];

const COPIES: readonly Place[] = [2, 4].map((dp) => ({ mesh: { dp }, sequence: false }));

type Places = readonly (readonly [task: ParallelTaskName, places: readonly Place[]])[];

/** The meshes of each task, by record file. */
const PLACES: Readonly<Record<RecordName, Places>> = {
  "training-parallel": [
    ["mlp", DIVIDED],
    ["transformer", DIVIDED],
    ["mlp in a pipeline", STAGES],
    ["transformer in a pipeline", STAGES],
  ],
  "training-copies": [
    ["mlp", COPIES],
    ["transformer", COPIES],
    ["sharded mlp", COPIES],
    ["sharded transformer", COPIES],
  ],
  "training-layers": [
    ["llama", layersOf(true)],
    ["gpt", layersOf(false)],
  ],
};

/** Every task under every recipe on every mesh, by record file. */
export function plansOf(name: RecordName): readonly ParallelPlan[] {
  return PLACES[name].flatMap(([task, places]) =>
    RECIPE_NAMES.flatMap((recipe) => places.map((place) => ({ task, recipe, ...place }))),
  );
}

export function titleOf({ task, recipe, mesh, sequence }: ParallelPlan): string {
  const axes = Object.entries(mesh).map(([axis, size]) => `${axis.toUpperCase()} ${size}`);
  return `${task}, ${recipe}, ${axes.join(" x ")}${sequence ? ", sequence parallel" : ""}`;
}

/** Selects the recorded steps from the hashes of the first steps. */
export function hashesAt(steps: readonly string[]): readonly string[] {
  return steps.filter((_, i) => i < 2 || (i + 1) % 10 === 0);
}
