/** Recognizes the weights of a checkpoint and converts them to one element per code. */
import type { Finding } from "../judge/findings.js";
import type { Claim } from "../stored/config/claim.js";
import type { ConventionName } from "../stored/conventions.js";
import { type ElementwiseWeight, toElementwise } from "../stored/elementwise.js";
import { readPackedShapes } from "../stored/packed-shapes.js";
import type { CheckpointTensors } from "../stored/tensors.js";
import { type Recognized, type RecognizedWeight, recognize } from "./recognize.js";

/** The result of `recognizeElementwise`. */
export interface RecognizedElementwise {
  /** The classified tensors, with elementwise weights and the findings of `recognize`. */
  readonly recognized: Recognized;
  /** The weights as the files store them. */
  readonly storedWeights: readonly RecognizedWeight[];
  /** Findings about zero points and group indices of columns. */
  readonly findings: readonly Finding[];
}

/**
 * Recognizes the weights and converts them with `toElementwise`. Reads packed shapes, zero points and group indices of columns,
 * but no codes. `as` forces one convention on every weight.
 */
export async function recognizeElementwise(
  checkpoint: CheckpointTensors,
  claim: Claim | undefined,
  as?: ConventionName,
): Promise<RecognizedElementwise> {
  const recognized = recognize(checkpoint, claim, { packedShapes: await readPackedShapes(checkpoint), as });
  const elementwise: ElementwiseWeight<RecognizedWeight>[] = [];
  for (const weight of recognized.weights) elementwise.push(await toElementwise(weight));
  return {
    recognized: { ...recognized, weights: elementwise.map(({ weight }) => weight) },
    storedWeights: recognized.weights,
    findings: elementwise.flatMap(({ findings }) => findings),
  };
}
