/** Plans a conversion of a checkpoint into any form. */
import { join } from "node:path";
import type { Backend } from "../../../backends/backend.js";
import { survey } from "../inspect.js";
import { Kernels } from "../kernels/kernels.js";
import { type Checkpoint, readOptionalJson } from "../stored/open.js";
import { wantedBy } from "../tensor-globs.js";
import { modelDType } from "./config-out.js";
import { type ConversionPlan, dequantizable, planConversion, requireSound, wideConversions } from "./plan.js";
import { ownConversions, quantizations } from "./quantizations.js";
import type { TargetChoice } from "./targets.js";

/** What the user wants. */
export interface Wish {
  readonly target: TargetChoice;
  /** Patterns of the weights to convert. Default: all that are quantized, or those of linear layers. */
  readonly tensors?: readonly string[] | undefined;
  /** Called when the first weight is quantized. */
  readonly backend: () => Promise<Backend>;
}

/**
 * Plans a conversion. Throws `FileError` if anything in the checkpoint would be read wrong or cannot have the form,
 * `ArgumentError` for patterns that match nothing.
 */
export async function planFor(
  checkpoint: Checkpoint,
  { target, tensors, backend }: Wish,
): Promise<ConversionPlan> {
  const surveyed = await survey(checkpoint);
  let opened: Promise<Kernels> | undefined;
  const kernels = (): Promise<Kernels> => {
    opened ??= Kernels.open();
    return opened;
  };
  if (target.wide === undefined) {
    requireSound(checkpoint, surveyed, () => true);
    const { name, row, own } = target;
    if (own !== undefined) {
      const conversions = ownConversions(surveyed, { name, quantizer: own, tensors, backend, kernels });
      return planConversion(checkpoint, target, conversions);
    }
    const config = await readOptionalJson(join(checkpoint.folder, "config.json"));
    const dtype = modelDType(config);
    const conversions = await quantizations(surveyed, {
      name,
      target: row,
      tensors,
      backend,
      kernels,
      dtype,
    });
    return planConversion(checkpoint, target, conversions);
  }
  const wanted = wantedBy(tensors, dequantizable(surveyed));
  requireSound(checkpoint, surveyed, wanted);
  const wide = wideConversions(surveyed, target.wide, wanted, { kernels, backend });
  return planConversion(checkpoint, target, wide);
}
