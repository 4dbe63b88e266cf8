/**
 * Gradients into codes and their column sums on a GPU: one pass for per-tensor FP8 under a scale or an amax given and for
 * block-scaled FP8, a pass for sums and amax before the codes under current scaling; else one operation after the other.
 */
import { blockFormat, isTensorWide, type ScaleRuleName } from "../../../formats/block.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { BiasGradQuantizeArgs } from "../../ops.js";
import { runBiasGradSteps } from "../../steps/bias-grad.js";
import { type Lowering, type LoweringContext, wideOf } from "../lowering.js";
import { chunkSumBytes } from "../rows/norm.js";
import { blockSource } from "./block.js";
import { tensorSource } from "./tensor.js";

/** How the kernel for blocks makes scales. */
const BLOCK_KERNEL_RULE: ScaleRuleName = "f32";

export const biasGradQuantize: Lowering<"biasGradQuantize"> = {
  run(context, args) {
    const { addon, device } = context;
    const { spec, biasGrad } = args;
    const [out, outType] = [biasGrad.address, wideOf(biasGrad)];
    if (isTensorWide(spec.tile)) {
      withSums(context, args, (workspace) =>
        addon.biasGradQuantizeTensor(device, { out, outType, ...tensorSource(args, workspace) }),
      );
    } else if (blockFormat(spec.quantizer).rule === BLOCK_KERNEL_RULE) {
      withSums(context, args, (workspace) =>
        addon.biasGradQuantizeBlock(device, { workspace, out, outType, ...blockSource(args) }),
      );
    } else {
      runBiasGradSteps(args);
    }
  },
};

/** Calls `body` with memory for the sums of each 32 rows and an amax. */
function withSums(
  { withTemporary }: LoweringContext,
  { x }: BiasGradQuantizeArgs,
  body: (workspace: number) => void,
): void {
  const [rows, columns] = asMatrix(x.shape);
  withTemporary(chunkSumBytes(rows, columns, 1) + 4, body);
}
