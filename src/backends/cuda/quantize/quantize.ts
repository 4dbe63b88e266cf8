/** Quantization on a GPU: the choice of a kernel by the tile and the scale rule. */
import { isTensorWide } from "../../../formats/block.js";
import { type KernelRule, type Lowering, supportsQuantization } from "../lowering.js";
import { quantizeBlock } from "./block.js";
import { quantizeMx } from "./mx.js";
import { quantizeNvfp4 } from "./nvfp4.js";
import { quantizeTensor } from "./tensor.js";

/** The kernels for block-scaled formats, by the rule that computes their scales. */
const BLOCKS = {
  f32: quantizeBlock,
  e8m0Up: quantizeMx,
  e8m0Floor: quantizeMx,
  e8m0Ceil: quantizeMx,
  e8m0Even: quantizeMx,
  e8m0UpQuotient: quantizeMx,
  twoLevel: quantizeNvfp4,
} as const satisfies Record<KernelRule, typeof quantizeBlock>;

export const quantize: Lowering<"quantize"> = {
  supports: supportsQuantization,
  run(context, args) {
    const { scaleRule, tile } = args.spec;
    const lower = isTensorWide(tile) ? quantizeTensor : BLOCKS[scaleRule as KernelRule];
    lower(context, args);
  },
};
