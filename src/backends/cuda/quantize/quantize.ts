/** Quantization on a GPU: the choice of a kernel by the tile and the scale rule. */
import { blockFormat, isTensorWide, type ScaleRuleName } from "../../../formats/block.js";
import { type Lowering, supportsDraws } from "../lowering.js";
import { quantizeBlock } from "./block.js";
import { quantizeMx } from "./mx.js";
import { quantizeNvfp4 } from "./nvfp4.js";
import { quantizeTensor } from "./tensor.js";

/** The kernels for block-scaled formats, by the rule that computes their scales. */
const BLOCKS = {
  f32: quantizeBlock,
  e8m0Up: quantizeMx,
  e8m0Floor: quantizeMx,
  twoLevel: quantizeNvfp4,
} as const satisfies Record<ScaleRuleName, typeof quantizeBlock>;

export const quantize: Lowering<"quantize"> = {
  supports: supportsDraws,
  run(context, args) {
    const { quantizer, tile } = args.spec;
    const lower = isTensorWide(tile) ? quantizeTensor : BLOCKS[blockFormat(quantizer).rule];
    lower(context, args);
  },
};
