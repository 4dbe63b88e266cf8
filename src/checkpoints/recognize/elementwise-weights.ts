/** Recognizes the weights of a checkpoint and converts their codes to one element each. */
import type { Finding } from "../judge/findings.js";
import type { Claim } from "../stored/config/claim.js";
import type { ConventionName } from "../stored/conventions.js";
import { type ElementwiseWeight, toElementwise } from "../stored/elementwise.js";
import { readPackedShapes } from "../stored/packed-shapes.js";
import type { CheckpointTensors } from "../stored/tensors.js";
import { type Recognized, type RecognizedWeight, recognize } from "./recognize.js";

/** What `recognizeElementwise` returns. */
export interface RecognizedElementwise {
  /** The tensors, with elementwise weights and the findings of `recognize`. */
  readonly recognized: Recognized;
  /** The weights as their tensors are in the files. */
  readonly storedWeights: readonly RecognizedWeight[];
  /** Findings about zero points and about the order of columns. */
  readonly findings: readonly Finding[];
}

/**
 * Recognizes the weights and converts them with `toElementwise`. Reads packed shapes, zero points and orders of columns, but no
 * codes. With `as`, every weight is read as of this convention.
 */
export async function recognizeElementwise(
  checkpoint: CheckpointTensors,
  claim: Claim | undefined,
  as?: ConventionName,
): Promise<RecognizedElementwise> {
  const found = recognize(checkpoint, claim, { packedShapes: await readPackedShapes(checkpoint), as });
  const elementwise: ElementwiseWeight<RecognizedWeight>[] = [];
  for (const weight of found.weights) elementwise.push(await toElementwise(weight));
  return {
    recognized: { ...found, weights: elementwise.map(({ weight }) => weight) },
    storedWeights: found.weights,
    findings: elementwise.flatMap(({ findings }) => findings),
  };
}
