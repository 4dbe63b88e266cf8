/** The recipes, one row each: the quantizers of weights and activations, and how products accumulate. */
import {
  encode,
  Float8BlockQuantizer,
  Float8CurrentScalingQuantizer,
  Float8Quantizer,
  MXFP4Quantizer,
  MXFP6Quantizer,
  MXFP8Quantizer,
  NVFP4Quantizer,
} from "lockstep";

/**
 * A row. `weights` and `activations` make a quantizer from a `scale` (f32 [1]), which only delayed scaling uses. With
 * `split`, chains of 128 are added in f32, as with `useSplitAccumulator`.
 */
function row(name, weights, activations = weights, split = false) {
  return { name, weights, activations, split };
}

/** The recipes whose block scales the page shows. */
export const CHARTED = ["mxfp8", "nvfp4", "fp8-block"];

const bf16 = { quantize: (x) => encode(x, { format: "bf16" }) };
const current = () => new Float8CurrentScalingQuantizer();

export const RECIPES = [
  row("bf16", () => bf16),
  row("fp8-delayed", ({ scale }) => new Float8Quantizer({ scale })),
  row("fp8-current", current),
  row("fp8-current, split", current, current, true),
  row(
    "fp8-block",
    () => new Float8BlockQuantizer({ tile: "128x128" }),
    () => new Float8BlockQuantizer({ tile: "1x128" }),
    true,
  ),
  row("mxfp8", () => new MXFP8Quantizer()),
  row("mxfp6 e2m3", () => new MXFP6Quantizer({ format: "e2m3" })),
  row("mxfp6 e3m2", () => new MXFP6Quantizer({ format: "e3m2" })),
  row("mxfp4", () => new MXFP4Quantizer()),
  row(
    "nvfp4",
    () => new NVFP4Quantizer({ tile: "16x16" }),
    () => new NVFP4Quantizer(),
  ),
  row(
    "nvfp4, 4over6",
    () => new NVFP4Quantizer({ tile: "16x16", fourOverSix: "mae" }),
    () => new NVFP4Quantizer({ fourOverSix: "mae" }),
  ),
];
