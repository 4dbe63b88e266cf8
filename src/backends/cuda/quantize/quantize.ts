/** Quantization on a GPU, by the family of the quantizer. */
import type { Lowering } from "../lowering.js";
import { quantizeBlock } from "./block.js";
import { quantizeMx } from "./mx.js";
import { quantizeNvfp4 } from "./nvfp4.js";
import { quantizeTensor } from "./tensor.js";

const FAMILIES = {
  "fp8-current": quantizeTensor,
  "fp8-delayed": quantizeTensor,
  "fp8-block": quantizeBlock,
  mxfp8: quantizeMx,
  mxfp6: quantizeMx,
  mxfp4: quantizeMx,
  nvfp4: quantizeNvfp4,
} as const;

export const quantize: Lowering<"quantize"> = {
  run(context, args) {
    FAMILIES[args.spec.quantizer](context, args);
  },
};
