/** How a tensor of a file was quantized: the metadata that `quantize` writes and `dequantize` and `gemm` read. */
import { blockFormat } from "../formats/block.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../tensor/quantized.js";
import type { Shape, WideDType } from "../tensor/shape.js";

/** Everything that says what the tensors of a quantized tensor mean. */
export interface Recipe {
  readonly spec: QuantizeSpec;
  /** The shape and type before quantization. */
  readonly shape: Shape;
  readonly dtype: WideDType;
  readonly scales: ScaleLayout;
  readonly usage: readonly Direction[];
}

/** How the metadata writes it. */
const FOUR_OVER_SIX = { none: false, mae: true, mse: "mse" } as const;

const KEY_PREFIX = "lockstep.";

/** The metadata key of a quantized tensor. */
export function recipeKey(name: string): string {
  return KEY_PREFIX + name;
}

/** The quantized tensor that a metadata key is about, if any. */
export function recipeSubject(key: string): string | undefined {
  return key.startsWith(KEY_PREFIX) ? key.slice(KEY_PREFIX.length) : undefined;
}

/** The metadata value of a quantized tensor. Fields that do not apply are absent. */
export function formatRecipe(recipe: Recipe, backend: string, version: string): string {
  const { spec, shape, dtype, scales, usage } = recipe;
  const { quantizer, format } = spec;
  const special = blockFormat(quantizer).options.map((field) => {
    return [field, field === "fourOverSix" ? FOUR_OVER_SIX[spec.fourOverSix] : spec[field]] as const;
  });
  return JSON.stringify({
    quantizer,
    format,
    ...Object.fromEntries(special),
    shape,
    dtype,
    scales,
    usage,
    backend,
    version,
  });
}
