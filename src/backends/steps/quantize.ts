/**
 * The quantization of a computed tensor, as separate operations. This defines which rounding a fused operation performs before
 * it quantizes.
 */

import { hasGivenScale, usesTensorAmax } from "../../formats/block.js";
import { factsOf } from "../../formats/derive.js";
import type { QuantizeSpec } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import type { QuantizeArgs } from "../ops.js";
import { runOn } from "../run.js";

type Wide = Tensor<WideDType>;

/** A function that computes the values and rounds them to the given dtype. */
type ValuesIn = (type: WideDType) => Wide;

/**
 * Quantizes the result of an activation. `dtype` is the dtype to which the unfused activation rounds. If the scale depends on
 * the amax of the whole tensor, that amax is computed from the f32 values (numerics.md §7.3).
 */
export function quantizeActivated(quantization: QuantizeArgs, dtype: WideDType, valuesIn: ValuesIn): void {
  if (!wantsAmax(quantization)) {
    quantizeNormed(quantization, dtype, valuesIn);
    return;
  }
  const { backend } = quantization.x;
  const values = valuesIn("f32");
  const amax = new Tensor(backend, "f32", [1]);
  runOn(backend, "amax", { x: values, out: amax });
  runOn(backend, "quantize", { ...quantization, x: rounded(values, dtype), amax });
}

/**
 * Quantizes the result of a norm. Its f32 values are quantized directly if the scale is given; otherwise they are rounded to
 * `dtype` first (numerics.md §7.3).
 */
export function quantizeNormed(quantization: QuantizeArgs, dtype: WideDType, valuesIn: ValuesIn): void {
  const { spec, x } = quantization;
  runOn(x.backend, "quantize", {
    ...quantization,
    x: valuesIn(hasGivenScale(spec) ? "f32" : dtype),
  });
}

/**
 * Whether the scales depend on an amax of the whole tensor that is not given and that is not computed from transformed data.
 * Per-row amaxes are computed from the rounded values (numerics.md §7.3).
 */
export function wantsAmax({ spec, amax }: { readonly spec: QuantizeSpec; readonly amax?: Wide | undefined }) {
  return !amax && !spec.rht && usesTensorAmax(spec);
}

function rounded(x: Wide, dtype: WideDType): Wide {
  if (dtype === "f32") return x;
  const out = new Tensor(x.backend, dtype, x.shape);
  const random = { seed: 0n, offset: 0n };
  runOn(x.backend, "encode", {
    x,
    word: factsOf(dtype).word,
    rounding: "tiesToEven",
    overflow: "nonfinite",
    random,
    scale: 1,
    out,
  });
  return out;
}
