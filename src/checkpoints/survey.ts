/** Recognizes the tensors of an open checkpoint and compares them with its configuration. Reads no codes. */

import { judgeClaims } from "./judge/config/claims.js";
import { type Finding, finding } from "./judge/findings.js";
import { recognizeElementwise } from "./recognize/elementwise-weights.js";
import { type Recognized, type RecognizedWeight, recognize } from "./recognize/recognize.js";
import type { Claim } from "./stored/config/claim.js";
import { type Configuration, readConfiguration } from "./stored/config/config.js";
import type { ConventionName } from "./stored/conventions.js";
import type { CheckpointFiles } from "./stored/files.js";
import { readPackedShapes } from "./stored/packed-shapes.js";

/** The recognized tensors of a checkpoint, and the claim of its configuration. */
export interface Survey extends Recognized {
  readonly claim?: Claim;
  /** The weights as the files store them, before `toElementwise`. */
  readonly storedWeights: readonly RecognizedWeight[];
}

/** Reads the configuration and recognizes the tensors. `as` forces one convention on every weight. */
export async function surveyFiles(checkpoint: CheckpointFiles, as?: ConventionName): Promise<Survey> {
  const configuration: Configuration = checkpoint.gguf
    ? { present: false, findings: [] }
    : await readConfiguration(checkpoint.folder);
  return surveyTensors(checkpoint, configuration, as);
}

/** As `surveyFiles`, with a configuration that the caller has read. */
export async function surveyTensors(
  checkpoint: CheckpointFiles,
  configuration: Configuration,
  as?: ConventionName,
): Promise<Survey> {
  const { claim } = configuration;
  const { recognized, storedWeights, findings } = await recognizeElementwise(checkpoint, claim, as);
  const unforced = as === undefined ? [] : await recognizeUnforced(checkpoint, claim);
  return {
    ...recognized,
    storedWeights,
    findings: [
      ...checkpoint.findings,
      ...configuration.findings,
      ...recognized.findings,
      ...notesOnForcedConvention(as, unforced),
      ...findings,
      ...judgeClaims(checkpoint, configuration, recognized),
    ],
    ...(claim ? { claim } : {}),
  };
}

async function recognizeUnforced(
  checkpoint: CheckpointFiles,
  claim: Claim | undefined,
): Promise<readonly RecognizedWeight[]> {
  return recognize(checkpoint, claim, { packedShapes: await readPackedShapes(checkpoint) }).weights;
}

/**
 * Returns one note for each convention that recognition would choose instead of `as`. `unforced`: the weights recognized without
 * `as`.
 */
function notesOnForcedConvention(
  as: ConventionName | undefined,
  unforced: readonly RecognizedWeight[],
): Finding[] {
  const otherConventions = new Map<ConventionName, string>();
  for (const { name, convention } of unforced)
    if (convention !== as && !otherConventions.has(convention)) otherConventions.set(convention, name);
  return [...otherConventions].map(([convention, name]) =>
    finding("convention-forced", name, `is read as ${as}; by its tensors it is ${convention}`),
  );
}
