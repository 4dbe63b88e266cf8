/**
 * Gradients into codes and their column sums on a GPU: one pass for per-tensor FP8 under a scale or an amax given and for
 * block-scaled FP8, a pass for sums and amax before the codes under current scaling; else one operation after the other.
 */
import { blockFormat, isTensorWide, type ScaleRuleName } from "../../../formats/block.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { BiasGradQuantizeArgs } from "../../ops.js";
import { runBiasGradSteps } from "../../steps/bias-grad.js";
import type { NativeArgs } from "../addon.js";
import { copiesOf } from "../layout/placement.js";
import { type Lowering, type LoweringContext, wideOf } from "../lowering.js";
import { chunkSumBytes } from "../rows/norm.js";
import { blockSource } from "./block.js";
import { tensorSource } from "./tensor.js";

/** How the kernel for blocks makes scales. */
const BLOCK_KERNEL_RULE: ScaleRuleName = "f32";

export const biasGradQuantize: Lowering<"biasGradQuantize"> = {
  run(context, args) {
    const { addon, device } = context;
    const { quantizer, tile } = args.spec;
    if (isTensorWide(tile)) {
      withSums(context, args, (sums) =>
        addon.biasGradQuantizeTensor(device, { ...tensorSource(args), ...sums }),
      );
    } else if (blockFormat(quantizer).rule === BLOCK_KERNEL_RULE) {
      const copies = copiesOf(args, asMatrix(args.x.shape));
      withSums(context, args, (sums) =>
        addon.biasGradQuantizeBlock(device, { ...blockSource(args), ...copies, ...sums }),
      );
    } else {
      runBiasGradSteps(args);
    }
  },
};

/** Where the sums go. */
type Sums = Pick<NativeArgs<"biasGradQuantizeTensor">, "out" | "outType" | "workspace">;

/** Calls `body` with where the sums go, and memory for those of each 32 rows and an amax. */
function withSums(
  { withTemporary }: LoweringContext,
  { x, biasGrad }: BiasGradQuantizeArgs,
  body: (sums: Sums) => void,
): void {
  const [rows, columns] = asMatrix(x.shape);
  withTemporary(chunkSumBytes(rows, columns, 1) + 4, (workspace) =>
    body({ out: biasGrad.address, outType: wideOf(biasGrad), workspace }),
  );
}
