/** Inspects and verifies checkpoints. */
import { selectNames } from "../glob.js";
import { bytesOfCodes, inspectFiles } from "../inspect.js";
import type { Finding } from "../judge/findings.js";
import type { CheckpointReport } from "../report.js";
import type { CheckpointFiles } from "../stored/files.js";
import { surveyFiles } from "../survey.js";
import { withCheckpointFiles } from "./open.js";
import { checkInspect, type InspectCheckpointOptions, progressOf, requireCheckpointPath } from "./options.js";

/** The result of `verifyCheckpoint`. */
export interface Verification {
  /** The path of the checkpoint. */
  readonly path: string;
  /** Whether no finding is an error. */
  readonly ok: boolean;
  /** The number of quantized tensors that were checked, including tensors that this library quantized. */
  readonly quantized: number;
  /** The number of tensors that are not quantized. */
  readonly unquantized: number;
  /** Errors, warnings and notes. */
  readonly findings: readonly Finding[];
}

/**
 * Reads the codes and scales of a checkpoint, and returns the convention and the statistics of each weight, and findings. Memory
 * does not grow with the size of the checkpoint, except for the scales of one weight.
 *
 * @throws `FileError` if the path leads to no checkpoint or a file cannot be read, `ArgumentError` for invalid paths and options,
 * and for a pattern of `tensors` that matches no weight, `BackendError` if the host does not allow WebAssembly.
 */
export async function inspectCheckpoint(
  path: string,
  options: InspectCheckpointOptions = {},
): Promise<CheckpointReport> {
  return inspect("inspectCheckpoint", path, options);
}

/**
 * Checks whether loaders will read the intended values: checks names, shapes and types of tensors, the configuration, scales and
 * codes, and with `original` the values. Reads as much as `inspectCheckpoint`.
 *
 * @throws `FileError` if the path leads to no checkpoint or a file cannot be read, `ArgumentError` for invalid paths and options,
 * and for a pattern of `tensors` that matches no weight, `BackendError` if the host does not allow WebAssembly.
 */
export async function verifyCheckpoint(
  path: string,
  options: InspectCheckpointOptions = {},
): Promise<Verification> {
  const { weights, lockstepWeights, unquantized, findings } = await inspect(
    "verifyCheckpoint",
    path,
    options,
  );
  return {
    path,
    ok: findings.every(({ severity }) => severity !== "error"),
    quantized: weights.length + Object.keys(lockstepWeights).length,
    unquantized: unquantized.length,
    findings,
  };
}

async function inspect(
  caller: string,
  path: string,
  options: InspectCheckpointOptions,
): Promise<CheckpointReport> {
  requireCheckpointPath(caller, "path", path);
  const { as, tensors, original, onProgress } = checkInspect(caller, options);
  const read = (originalFiles?: CheckpointFiles): Promise<CheckpointReport> =>
    withCheckpointFiles(path, async (files) => {
      const survey = await surveyFiles(files, as);
      const isSelected = selectNames(
        tensors,
        survey.weights.map(({ name }) => name),
      );
      const onBytes = progressOf(bytesOfCodes(survey, isSelected), onProgress);
      return inspectFiles(files, survey, { isSelected, original: originalFiles, onBytes });
    });
  return original === undefined ? read() : withCheckpointFiles(original, read);
}
