/** Plans a conversion of a checkpoint to any target. */
import { join } from "node:path";
import type { Backend } from "../../../backends/backend.js";
import { selectNames } from "../../glob.js";
import { Kernels } from "../../kernels/kernels.js";
import type { ConventionName } from "../../stored/conventions.js";
import { type CheckpointFiles, readOptionalJson } from "../../stored/open.js";
import { surveyFiles } from "../../survey.js";
import { modelDType } from "../metadata/output-config.js";
import { requireSound, requireSoundValues } from "../soundness.js";
import type { NamedTarget } from "../targets/named.js";
import {
  assemblePlan,
  type ConversionPlan,
  type Conversions,
  dequantizable,
  wideConversions,
} from "./steps.js";
import { lockstepConversions, quantizedConversions } from "./to-quantized.js";

/** The requested conversion. */
export interface ConversionRequest {
  readonly target: NamedTarget;
  /** Patterns of the weights to convert. Default: all quantized weights, or, without any, the weights of linear layers. */
  readonly tensors?: readonly string[] | undefined;
  /** The convention of every quantized weight, whatever its tensors look like. */
  readonly as?: ConventionName | undefined;
  /** Opens the backend; called at the first weight that is quantized. */
  readonly backend: () => Promise<Backend>;
}

/**
 * Plans a conversion. Reads and checks the codes and scales of the weights to convert. Throws `FileError` if loaders would
 * misread anything in the checkpoint or a weight cannot have the form, `ArgumentError` for patterns that match nothing.
 */
export async function planConversion(
  checkpoint: CheckpointFiles,
  { target, tensors, as, backend }: ConversionRequest,
): Promise<ConversionPlan> {
  const surveyed = await surveyFiles(checkpoint, as);
  let opened: Promise<Kernels> | undefined;
  const kernels = (): Promise<Kernels> => {
    opened ??= Kernels.open();
    return opened;
  };
  const judged = async (conversions: Conversions): Promise<ConversionPlan> => {
    const steps = new Map([...conversions.steps.values()].map((step) => [step.name, step]));
    await requireSoundValues(checkpoint, surveyed, {
      isSelected: (name) => steps.has(name),
      kernels: await kernels(),
      onStatistics: (name, statistics) => steps.get(name)?.onStatistics?.(statistics),
    });
    return assemblePlan(checkpoint, target, conversions);
  };
  if (target.wide !== undefined) {
    const isSelected = selectNames(tensors, dequantizable(surveyed));
    requireSound(checkpoint, surveyed, isSelected);
    return judged(wideConversions(surveyed, target.wide, isSelected, { kernels, backend }));
  }
  requireSound(checkpoint, surveyed, () => true);
  const { name, dialectTarget: row, lockstepQuantizer: quantizer } = target;
  if (quantizer !== undefined)
    return judged(lockstepConversions(surveyed, { name, quantizer, tensors, backend, kernels }));
  const config = await readOptionalJson(join(checkpoint.folder, "config.json"));
  const dtype = modelDType(config);
  return judged(
    await quantizedConversions(surveyed, { name, target: row, tensors, backend, kernels, dtype }),
  );
}
