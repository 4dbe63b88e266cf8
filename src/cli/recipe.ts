/** How a tensor of a file was quantized: the metadata that `quantize` writes and `dequantize` and `gemm` read. */
import { BLOCK_FORMATS, type BlockFormatName, type Tile } from "../formats/block.js";
import { recordedField } from "../io/recorded-spec.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../tensor/quantized.js";
import type { Shape, WideDType } from "../tensor/shape.js";

export const QUANTIZER_NAMES = Object.keys(BLOCK_FORMATS) as readonly BlockFormatName[];
export const SCALE_LAYOUTS = ["logical", "padded", "swizzled"] as const satisfies readonly ScaleLayout[];
export const DIRECTIONS = ["rowwise", "columnwise"] as const satisfies readonly Direction[];
export const TILES: readonly Tile[] = ["1x128", "128x128", "1x32", "32x32", "1x16", "16x16"];

/** Everything that says what the tensors of a quantized tensor mean. */
export interface Recipe {
  readonly spec: QuantizeSpec;
  /** The shape and type before quantization. */
  readonly shape: Shape;
  readonly dtype: WideDType;
  readonly scales: ScaleLayout;
  readonly usage: readonly Direction[];
}

/** Fields of a spec that some quantizers alone have. */
export type SpecialField =
  | "tile"
  | "pow2Scales"
  | "amaxEpsilon"
  | "rht"
  | "stochastic"
  | "fourOverSix"
  | "e4m3Max";

const PER_TENSOR: readonly SpecialField[] = ["pow2Scales", "amaxEpsilon"];
const NVFP4: readonly SpecialField[] = ["tile", "rht", "stochastic", "fourOverSix", "e4m3Max"];

const SPECIAL_FIELDS: Readonly<Record<BlockFormatName, readonly SpecialField[]>> = {
  "fp8-current": PER_TENSOR,
  "fp8-delayed": [],
  "fp8-block": ["tile", ...PER_TENSOR],
  mxfp8: ["tile"],
  mxfp6: ["tile"],
  mxfp4: ["tile"],
  nvfp4: NVFP4,
};

/** Whether a field of the spec means anything for the quantizer. */
export function applies(quantizer: BlockFormatName, field: SpecialField): boolean {
  return SPECIAL_FIELDS[quantizer].includes(field);
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
  const special = SPECIAL_FIELDS[quantizer].map((field) => {
    return [
      recordedField(field),
      field === "fourOverSix" ? FOUR_OVER_SIX[spec.fourOverSix] : spec[field],
    ] as const;
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
