/** What comes into a conversion and what goes out is judged by the findings of `lockstep verify`. */
import { FileError } from "../../errors.js";
import { inspectFiles } from "../inspect.js";
import type { Finding, FindingName } from "../judge/findings.js";
import { CIRCUMSTANTIAL } from "../judge/weights/from-statistics.js";
import type { Kernels } from "../kernels/kernels.js";
import { type CheckpointFiles, openCheckpointFiles } from "../stored/open.js";
import { type Survey, surveyFiles } from "../survey.js";

/** Findings about loaders that fuse weights. Each weight has its values, and the output is judged too. */
const OF_LOADERS: ReadonlySet<FindingName> = new Set(["fused-scales-differ"]);

/** Throws `FileError` that names the first finding, if there is one. */
function stopAt(path: string, [found, ...others]: readonly Finding[]): void {
  if (!found) return;
  const more = others.length > 0 ? ` (and ${others.length} more, which lockstep verify lists)` : "";
  throw new FileError(`${path}: ${found.name}: ${found.subject}: ${found.what}; ${found.remedy}${more}`);
}

/**
 * Throws `FileError` if names, shapes or the configuration have an error, or if a chosen weight has a zero point. Reads no codes.
 */
export function requireSound(
  { path }: CheckpointFiles,
  { findings }: Survey,
  wanted: (name: string) => boolean,
): void {
  const isStop = ({ name, severity, subject }: Finding): boolean =>
    severity === "error" || (name === "zero-point" && wanted(subject));
  stopAt(path, findings.filter(isStop));
}

/** Throws `FileError` if the codes or scales of a chosen weight, or the values of a chosen packed tensor, have an error. */
export async function requireSoundValues(
  checkpoint: CheckpointFiles,
  surveyed: Survey,
  wanted: (name: string) => boolean,
  kernels: Kernels,
): Promise<void> {
  const { findings } = await inspectFiles(checkpoint, surveyed, { isSelected: wanted, kernels });
  const isStop = ({ name, severity }: Finding): boolean => severity === "error" && !OF_LOADERS.has(name);
  stopAt(checkpoint.path, findings.filter(isStop));
}

/**
 * Throws `FileError` if what was written into a folder has an error. Codes of the weights that `wanted` chooses are read. Their
 * values are known to be near those of the input, so that findings by circumstances are left out.
 */
export async function requireSoundOutput(folder: string, wanted: (name: string) => boolean): Promise<void> {
  const checkpoint = await openCheckpointFiles(folder);
  try {
    const { findings } = await inspectFiles(checkpoint, await surveyFiles(checkpoint), {
      isSelected: wanted,
    });
    const isStop = ({ name, severity }: Finding): boolean =>
      severity === "error" && !CIRCUMSTANTIAL.has(name);
    stopAt(folder, findings.filter(isStop));
  } finally {
    await checkpoint.close();
  }
}
