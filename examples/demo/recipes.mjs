/** The recipes, one row each: how weights and activations are quantized, and how the products are summed. */
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
 * A row: `weights` and `activations` make a quantizer, given the `scale` (f32 [1]) that delayed scaling took from
 * the past. `split` sums in chains of 128 that are added in f32, as `useSplitAccumulator` says.
 */
function row(name, weights, activations = weights, split = false) {
  return { name, weights, activations, split };
}

/** Recipes whose block scales the picture shows. */
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
