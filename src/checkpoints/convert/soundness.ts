/** Stops a conversion whose input or output has errors by `lockstep verify`. */
import { FileError } from "../../errors.js";
import { type InspectOptions, inspectFiles, WeightInspector } from "../inspect.js";
import type { Finding, FindingName } from "../judge/findings.js";
import type { OnCodes } from "../judge/statistics/code-sums.js";
import type { Statistics } from "../judge/statistics/statistics.js";
import type { Kernels } from "../kernels/kernels.js";
import type { CheckpointFiles } from "../stored/files.js";
import type { Survey } from "../survey.js";

/**
 * Findings that do not stop a conversion, because they affect only loaders that fuse weights. The values are correct, and the
 * output is also checked for these findings.
 */
const LOADER_FINDINGS: ReadonlySet<FindingName> = new Set(["fused-scales-differ"]);

/** Throws `FileError` that names the first finding. Returns if there is no finding. */
export function stopAt(path: string, [finding, ...otherFindings]: readonly Finding[]): void {
  if (!finding) return;
  const remainder =
    otherFindings.length > 0 ? ` (and ${otherFindings.length} more, which lockstep verify lists)` : "";
  throw new FileError(`${messageOf(path, finding)}${remainder}`);
}

const messageOf = (path: string, { name, subject, what, remedy }: Finding): string =>
  `${path}: ${name}: ${subject}: ${what}; ${remedy}`;

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

/** Whether a finding about codes or scales of the input stops a conversion. */
const isStopOfValues = ({ name, severity }: Finding): boolean =>
  severity === "error" && !LOADER_FINDINGS.has(name);

/** Throws `FileError` if the codes or scales of a selected weight, or the values of a selected packed tensor, have an error. */
export async function requireSoundValues(
  checkpoint: CheckpointFiles,
  survey: Survey,
  options: Pick<InspectOptions, "isSelected" | "kernels">,
): Promise<void> {
  const { findings } = await inspectFiles(checkpoint, survey, { ...options, onlyErrors: true });
  stopAt(checkpoint.path, findings.filter(isStopOfValues));
}

/** The error for a weight whose codes are wrong, if this is found only while they are copied to the output. */
export class UnsoundWeightError extends FileError {}

/**
 * Reads the codes of a quantized weight once, and returns their statistics. Calls `onCodes` with the stored bytes of the codes,
 * in order. Throws `UnsoundWeightError` where `requireSoundValues` would throw.
 */
export type JudgeWeight = (name: string, onCodes: OnCodes) => Promise<Statistics>;

/** Judges the weights of a checkpoint while they are copied. */
export function weightJudge(
  { path }: CheckpointFiles,
  survey: Survey,
  kernels: () => Promise<Kernels>,
): JudgeWeight {
  const weights = new Map(survey.weights.map((weight) => [weight.name, weight]));
  let inspector: WeightInspector | undefined;
  return async (name, onCodes) => {
    const weight = weights.get(name);
    if (!weight) throw new FileError(`${path}: "${name}" is no quantized weight`);
    inspector ??= new WeightInspector(survey, undefined, { kernels: await kernels(), onlyErrors: true });
    const { findings, statistics } = await inspector.inspect(weight, onCodes);
    const [first] = findings.filter(isStopOfValues);
    if (first) throw new UnsoundWeightError(messageOf(path, first));
    return statistics;
  };
}
