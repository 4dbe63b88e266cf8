/** The task of one rank of a training run. */
import type { Mesh } from "../../../../src/collectives/group.js";
import type { Module } from "../../../../src/modules/module.js";
import type { Optimizer } from "../../../../src/optimizers/optimizer.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";

/** The arguments from which a rank creates its task. */
export interface RankSetup {
  readonly mesh: Mesh;
  /** Whether activations are divided by rows among the ranks that divide the layers (sequence parallelism). */
  readonly sequence: boolean;
  /** The type of the parameters. */
  readonly dtype: "bf16" | "f32";
  readonly recipe: Recipe | undefined;
  /** The numbers of the samples whose gradients this rank accumulates. */
  readonly samples: readonly number[];
}

/** The model and optimizer of one rank. */
export interface RankTask {
  readonly model: Module;
  readonly optimizer: Optimizer;
  /** Computes the gradients of a step. Returns the losses, which the caller owns. */
  readonly gradients: (step: number) => readonly Tensor[];
  /** The full parameters, if the model has only parts of them. The caller disposes of them. */
  readonly fullParameters?: (() => readonly Tensor[]) | undefined;
  /** Releases everything except the model and the optimizer. */
  readonly end?: (() => void) | undefined;
}
