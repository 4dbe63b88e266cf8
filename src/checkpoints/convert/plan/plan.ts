/** Plans a conversion of a checkpoint into any form. */
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

/** What the user wants. */
export interface ConversionRequest {
  readonly target: NamedTarget;
  /** Patterns of the weights to convert. Default: all that are quantized, or those of linear layers. */
  readonly tensors?: readonly string[] | undefined;
  /** The convention of every quantized weight, whatever its tensors look like. */
  readonly as?: ConventionName | undefined;
  /** Called when the first weight is quantized. */
  readonly backend: () => Promise<Backend>;
}

/**
 * Plans a conversion. Reads codes and scales of what is converted, and judges them. Throws `FileError` if anything in
 * the checkpoint would be read wrong or cannot have the form, `ArgumentError` for patterns that match nothing.
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
    const names = new Set([...conversions.steps.values()].map(({ name }) => name));
    await requireSoundValues(checkpoint, surveyed, (name) => names.has(name), await kernels());
    return assemblePlan(checkpoint, target, conversions);
  };
  if (target.wide !== undefined) {
    const wanted = selectNames(tensors, dequantizable(surveyed));
    requireSound(checkpoint, surveyed, wanted);
    return judged(wideConversions(surveyed, target.wide, wanted, { kernels, backend }));
  }
  requireSound(checkpoint, surveyed, () => true);
  const { name, dialectTarget: row, lockstepQuantizer: own } = target;
  if (own !== undefined)
    return judged(lockstepConversions(surveyed, { name, quantizer: own, tensors, backend, kernels }));
  const config = await readOptionalJson(join(checkpoint.folder, "config.json"));
  const dtype = modelDType(config);
  return judged(
    await quantizedConversions(surveyed, { name, target: row, tensors, backend, kernels, dtype }),
  );
}
