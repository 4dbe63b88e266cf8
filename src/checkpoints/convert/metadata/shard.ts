/** The metadata of safetensors files that a conversion writes. */
import type { Metadata } from "../../../io/header/header.js";
import { recipeSubject } from "../../../io/quantized/recipe.js";
import type { CheckpointFiles } from "../../stored/files.js";
import type { ConversionPlan, ShardPlan } from "../plan/steps.js";
import { fileMetadata } from "./quantization-config.js";

/** The metadata of a safetensors file: entries that the target's library reads, or the format and Lockstep's recipes. */
export function shardMetadata(
  { metadata }: CheckpointFiles,
  { target, kept }: ConversionPlan,
  { steps }: ShardPlan,
): Metadata {
  const ofWeights = Object.fromEntries(
    steps.flatMap((step) => (step.kind === "convert" ? Object.entries(step.metadata ?? {}) : [])),
  );
  const copied = steps.flatMap((step) => (step.kind === "copy" ? [step.from.entry.name] : []));
  const ofLibrary = target.dialectTarget && fileMetadata(target.dialectTarget.declaration, ofWeights, copied);
  if (ofLibrary) return ofLibrary;
  const keptRecipes = Object.entries(metadata).filter(([key]) => {
    const name = recipeSubject(key);
    return name !== undefined && kept.includes(name) && copied.some((part) => part.startsWith(`${name}.`));
  });
  return {
    format: metadata.format ?? "pt",
    ...Object.fromEntries(keptRecipes),
    ...(target.lockstepQuantizer ? ofWeights : {}),
  };
}
