/** Stops a conversion whose input or output has errors by `lockstep verify`. */
import { FileError } from "../../errors.js";
import { type InspectOptions, inspectFiles } from "../inspect.js";
import type { Finding, FindingName } from "../judge/findings.js";
import { CIRCUMSTANTIAL } from "../judge/weights/from-statistics.js";
import { type CheckpointFiles, openCheckpointFiles } from "../stored/open.js";
import { type Survey, surveyFiles } from "../survey.js";

/** Findings that concern only loaders that fuse weights: the values are right, and the output is checked for them too. */
const LOADER_FINDINGS: ReadonlySet<FindingName> = new Set(["fused-scales-differ"]);

/** Throws `FileError` that names the first finding, if there is one. */
function stopAt(path: string, [finding, ...others]: readonly Finding[]): void {
  if (!finding) return;
  const more = others.length > 0 ? ` (and ${others.length} more, which lockstep verify lists)` : "";
  throw new FileError(
    `${path}: ${finding.name}: ${finding.subject}: ${finding.what}; ${finding.remedy}${more}`,
  );
}

/**
 * Throws `FileError` if names, shapes or the configuration have an error, or if a selected weight has a zero point. Reads no
 * codes.
 */
export function requireSound(
  { path }: CheckpointFiles,
  { findings }: Survey,
  isSelected: (name: string) => boolean,
): void {
  const isStop = ({ name, severity, subject }: Finding): boolean =>
    severity === "error" || (name === "zero-point" && isSelected(subject));
  stopAt(path, findings.filter(isStop));
}

/** Throws `FileError` if the codes or scales of a selected weight, or the values of a selected packed tensor, have an error. */
export async function requireSoundValues(
  checkpoint: CheckpointFiles,
  surveyed: Survey,
  options: Pick<InspectOptions, "isSelected" | "kernels" | "onStatistics">,
): Promise<void> {
  const { findings } = await inspectFiles(checkpoint, surveyed, { ...options, onlyErrors: true });
  const isStop = ({ name, severity }: Finding): boolean => severity === "error" && !LOADER_FINDINGS.has(name);
  stopAt(checkpoint.path, findings.filter(isStop));
}

/**
 * Throws `FileError` if the files of a folder have an error. Reads the codes of the selected weights. Ignores circumstantial
 * findings, because the values were compared with the input.
 */
export async function requireSoundOutput(
  folder: string,
  isSelected: (name: string) => boolean,
): Promise<void> {
  const checkpoint = await openCheckpointFiles(folder);
  try {
    const { findings } = await inspectFiles(checkpoint, await surveyFiles(checkpoint), {
      isSelected,
      onlyErrors: true,
    });
    const isStop = ({ name, severity }: Finding): boolean =>
      severity === "error" && !CIRCUMSTANTIAL.has(name);
    stopAt(folder, findings.filter(isStop));
  } finally {
    await checkpoint.close();
  }
}
