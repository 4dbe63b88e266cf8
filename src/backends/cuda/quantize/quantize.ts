/** Quantization on a GPU: the choice of a kernel by the tile and the type of the scales. */
import { isLineWide, isTensorWide } from "../../../formats/block.js";
import { SCALE_RULES, type ScaleRule } from "../../../formats/scale-rules.js";
import { storageBits } from "../../../tensor/shape.js";
import { quantizeWholeBlocks, supportsWholeBlocks } from "../../steps/whole-blocks.js";
import type { Lowering } from "../lowering.js";
import { quantizeBlock } from "./block.js";
import { quantizeGroup } from "./group.js";
import { quantizeMx } from "./mx.js";
import { quantizeNvfp4 } from "./nvfp4.js";
import { quantizeRow } from "./row.js";
import { quantizeTensor } from "./tensor.js";
import { zeroFilled } from "./zero-filled.js";

/** The kernels for block-scaled formats, by the type of their scales; under f32 scales, by whether two codes share a byte. */
const BLOCKS = {
  f32: (context, args) =>
    storageBits(args.spec.format) < 8 ? quantizeGroup(context, args) : quantizeBlock(context, args),
  e8m0: quantizeMx,
  e4m3: quantizeNvfp4,
  ue5m3: quantizeNvfp4,
} as const satisfies Record<ScaleRule["scale"], typeof quantizeBlock>;

export const quantize: Lowering<"quantize"> = {
  supports: supportsWholeBlocks,
  run(context, args) {
    const { scaleRule, tile } = args.spec;
    const ofBlocks = isLineWide(tile) ? quantizeRow : BLOCKS[SCALE_RULES[scaleRule].scale];
    const lower = isTensorWide(tile) ? quantizeTensor : ofBlocks;
    quantizeWholeBlocks(args, {
      zeroFilled: (x, rows) => zeroFilled(context, x, rows),
      quantize: (fullTensor) => lower(context, fullTensor),
    });
  },
};
