/** Plans a conversion of a checkpoint to any target. */
import type { Backend } from "../../../backends/backend.js";
import { selectNames } from "../../glob.js";
import { Kernels } from "../../kernels/kernels.js";
import type { ConventionName } from "../../stored/conventions.js";
import type { CheckpointFiles } from "../../stored/files.js";
import { readJson } from "../../stored/folder.js";
import { surveyFiles } from "../../survey.js";
import { modelDType } from "../metadata/output-config.js";
import { requireSound, requireSoundValues, weightJudge } from "../soundness.js";
import type { NamedTarget } from "../targets/named.js";
import {
  assemblePlan,
  type ConversionPlan,
  type Conversions,
  dequantizableNames,
  wideConversions,
} from "./steps.js";
import { lockstepConversions, quantizedConversions } from "./to-quantized.js";

/** The requested conversion. */
export interface ConversionRequest {
  readonly target: NamedTarget;
  /**
   * Patterns of the weights to convert. Default: all quantized weights or, without quantized weights, the weights of linear
   * layers.
   */
  readonly tensors?: readonly string[] | undefined;
  /** The convention of every quantized weight, regardless of its tensors. */
  readonly as?: ConventionName | undefined;
  /** Opens the backend. Called at the first weight that is quantized. */
  readonly backend: () => Promise<Backend>;
}

/**
 * Plans a conversion. Reads and checks the codes and scales of the weights to convert, except the codes of repacked weights.
 * These codes are checked while they are copied, so that they are read only once. Throws `FileError` if loaders would misread
 * anything in the checkpoint or a weight cannot have the form, `ArgumentError` for patterns that match nothing.
 */
export async function planConversion(
  checkpoint: CheckpointFiles,
  { target, tensors, as, backend }: ConversionRequest,
): Promise<ConversionPlan> {
  const survey = await surveyFiles(checkpoint, as);
  let kernelsPromise: Promise<Kernels> | undefined;
  const kernels = (): Promise<Kernels> => {
    kernelsPromise ??= Kernels.open();
    return kernelsPromise;
  };
  const judgeWeights = async (conversions: Conversions): Promise<ConversionPlan> => {
    const methods = new Map([...conversions.steps.values()].map(({ name, method }) => [name, method]));
    const requireSoundWeights = async (isSelected: (name: string) => boolean): Promise<void> =>
      requireSoundValues(checkpoint, survey, { isSelected, kernels: await kernels() });
    await requireSoundWeights((name) => methods.has(name) && methods.get(name) !== "repacked");
    const requireSoundInput = (): Promise<void> => requireSoundWeights((name) => methods.has(name));
    return { ...assemblePlan(checkpoint, target, conversions), requireSoundInput };
  };
  if (target.wide !== undefined) {
    const isSelected = selectNames(tensors, dequantizableNames(survey));
    requireSound(checkpoint, survey, isSelected);
    return judgeWeights(wideConversions(survey, target.wide, isSelected, { kernels, backend }));
  }
  requireSound(checkpoint, survey, () => true);
  const { name, dialectTarget: row, lockstepQuantizer: quantizer } = target;
  if (quantizer !== undefined)
    return judgeWeights(lockstepConversions(survey, { name, quantizer, tensors, backend, kernels }));
  const config = await readJson(checkpoint.folder, "config.json");
  const dtype = modelDType(config);
  const judge = weightJudge(checkpoint, survey, kernels);
  return judgeWeights(
    await quantizedConversions(survey, { name, target: row, tensors, backend, kernels, judge, dtype }),
  );
}
