/** Finds the quantized tensors that this library wrote, by the recipes in the metadata. */
import { LockstepError } from "../../errors.js";
import { quantizedPlans, recipesOf, requireMembers } from "../../io/quantized/quantized-file.js";
import type { Recipe } from "../../io/quantized/recipe.js";
import type { TensorSource } from "../../io/source.js";
import { type Finding, finding } from "../judge/findings.js";
import type { CheckpointTensors } from "./tensors.js";

/** A quantized tensor, and its recipe. */
export interface LockstepWeight {
  readonly name: string;
  readonly recipe: Recipe;
  /** The file that contains the tensor. */
  readonly shard: TensorSource;
}

/**
 * Finds the quantized tensors of each shard, adds the names of their member tensors to `claimedNames`, and checks that all
 * members exist.
 */
export function findLockstepWeights(
  { shards }: CheckpointTensors,
  claimedNames: Set<string>,
  findings: Finding[],
): readonly LockstepWeight[] {
  const weights: LockstepWeight[] = [];
  for (const shard of shards) {
    let recipes: ReadonlyMap<string, Recipe>;
    try {
      recipes = recipesOf(shard);
    } catch (error) {
      if (!(error instanceof LockstepError)) throw error;
      findings.push(finding("companion-shape", shard.path, error.message));
      continue;
    }
    for (const [name, recipe] of recipes) {
      try {
        for (const plan of quantizedPlans(name, recipe)) claimedNames.add(plan.name);
        for (const direction of recipe.usage) requireMembers(shard, name, recipe, direction);
        weights.push({ name, recipe, shard });
      } catch (error) {
        if (!(error instanceof LockstepError)) throw error;
        findings.push(finding("companion-shape", name, error.message));
      }
    }
  }
  return weights;
}
