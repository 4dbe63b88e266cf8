/** Quantization on a GPU: the choice of a kernel by the tile and the scale rule. */
import { isTensorWide } from "../../../formats/block.js";
import type { ScaleRuleName } from "../../../formats/scale-rules.js";
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
  e8m0Ceil: quantizeMx,
  e8m0Even: quantizeMx,
  e8m0EvenShort: quantizeMx,
  e8m0UpQuotient: quantizeMx,
  twoLevel: quantizeNvfp4,
} as const satisfies Record<ScaleRuleName, typeof quantizeBlock>;

export const quantize: Lowering<"quantize"> = {
  supports: supportsDraws,
  run(context, args) {
    const { scaleRule, tile } = args.spec;
    const lower = isTensorWide(tile) ? quantizeTensor : BLOCKS[scaleRule];
    lower(context, args);
  },
};
