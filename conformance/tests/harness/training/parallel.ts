/** Training runs on meshes of ranks, with a hash of the losses and parameters of all ranks after each step. */
import { createHash } from "node:crypto";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import type { MeshSizes } from "../../../../src/collectives/mesh.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { dividedMlp, dividedTransformer, shardedMlp, shardedTransformer } from "./divided.js";
import { gpt, llama } from "./layers.js";
import type { RankSetup, RankTask } from "./rank-task.js";
import { RECIPES_UNDER_TEST, type RecipeName } from "./run.js";
import { pipelinedMlp, pipelinedTransformer } from "./stages.js";

/**
 * The tasks: with layers divided among ranks (tp) and replicas (dp), fully sharded (dp), in a pipeline (pp), or of transformer
 * layers, which are divided among ranks (tp) or have divided positions (cp).
 */
export const PARALLEL_TASKS = {
  mlp: dividedMlp,
  transformer: dividedTransformer,
  "sharded mlp": shardedMlp,
  "sharded transformer": shardedTransformer,
  "mlp in a pipeline": pipelinedMlp,
  "transformer in a pipeline": pipelinedTransformer,
  llama,
  gpt,
} as const satisfies Record<string, (setup: RankSetup) => RankTask>;

export type ParallelTaskName = keyof typeof PARALLEL_TASKS;

/** A run: the task, and the mesh that it runs on. */
export interface ParallelPlan {
  readonly task: ParallelTaskName;
  readonly recipe: RecipeName;
  readonly mesh: MeshSizes;
  readonly sequence: boolean;
}

/** Differences between a run and the recorded ones. All fields are optional. */
export interface ParallelForm {
  /** Default: the plan's recipe. */
  readonly recipe?: Recipe | undefined;
  /** The type of the parameters. Default bf16. */
  readonly dtype?: "bf16" | "f32" | undefined;
  /** Whether one network without replicas takes the samples of `dp` networks one after another. Default false. */
  readonly accumulates?: boolean | undefined;
  /** Whether the hash covers only the parameters, without the losses. Default false. */
  readonly parametersOnly?: boolean | undefined;
}

/** The number of ranks of a mesh. */
export function meshSize({ tp = 1, cp = 1, dp = 1, pp = 1 }: MeshSizes): number {
  return tp * cp * dp * pp;
}

/** Creates the run of one rank. */
function rankRun(group: ProcessGroup, plan: ParallelPlan, form: ParallelForm) {
  const { accumulates = false, dtype = "bf16", parametersOnly = false } = form;
  const { dp = 1, ...sharedMesh } = plan.mesh;
  const mesh = group.split(accumulates ? sharedMesh : plan.mesh);
  const recipe = form.recipe ?? RECIPES_UNDER_TEST[plan.recipe]?.();
  const samples = accumulates ? Array.from({ length: dp }, (_, sample) => sample) : [mesh.dp.rank];
  const { sequence } = plan;
  const task = PARALLEL_TASKS[plan.task]({ mesh, sequence, dtype, recipe, samples });
  const { model, optimizer } = task;
  const hash = createHash("sha256");
  let step = 0;
  return {
    /** Runs one step. The returned function reads the results and resolves to the hash. */
    advance(): () => Promise<string> {
      using scope = new Scope();
      const losses = task.gradients(step++).map((loss) => scope.keep(loss));
      optimizer.step();
      optimizer.zeroGrad();
      const fullParameters =
        task.fullParameters?.() ?? model.parameters().map(({ tensor }) => tensor.clone());
      const parameters = fullParameters.map((parameter) => scope.keep(parameter));
      return async () => {
        for (const x of parametersOnly ? parameters : [...losses, ...parameters])
          hash.update(new Uint8Array((await x.data()).buffer as ArrayBuffer));
        for (const x of [...losses, ...parameters]) x.dispose();
        return hash.copy().digest("hex").slice(0, 16);
      };
    },
    dispose(): void {
      task.end?.();
      optimizer.dispose();
      model.dispose();
    },
  };
}

/** Runs the first steps on all ranks of a group. Returns one hash per step, computed from the ranks' hashes. */
export async function parallelSteps(
  groups: readonly ProcessGroup[],
  plan: ParallelPlan,
  steps: number,
): Promise<readonly string[]> {
  const rankHashes = await rankSteps(groups, plan, steps);
  return rankHashes.map(combineRankHashes);
}

/** Combines the ranks' hashes of a step. */
export function combineRankHashes(hashes: readonly string[]): string {
  return createHash("sha256").update(hashes.join(" ")).digest("hex").slice(0, 16);
}

/** As `parallelSteps`, but returns each rank's hash of its losses and parameters up to that step. */
export async function rankSteps(
  groups: readonly ProcessGroup[],
  plan: ParallelPlan,
  steps: number,
  form: ParallelForm = {},
): Promise<readonly (readonly string[])[]> {
  const runs = groups.map((group) => rankRun(group, plan, form));
  const hashes: string[][] = [];
  for (let step = 0; step < steps; step++) {
    const reads = runs.map((run) => run.advance());
    hashes.push(await Promise.all(reads.map((read) => read())));
  }
  for (const run of runs) run.dispose();
  return hashes;
}
