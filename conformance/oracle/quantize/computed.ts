/**
 * Quantization inside a fused kernel: some quantizers read the f32 values that the kernel computed, others their rounding to
 * x.dtype (numerics.md §7.3).
 */
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { bitsOf } from "../core/rational.js";
import { decode, encode } from "../core/scalar.js";
import { amaxOf } from "../core/scale.js";
import { type Quantized, type QuantizeSpec, quantize, type Source } from "./quantize.js";

/**
 * Quantizes the f32 results of a norm. Delayed scaling reads the f32 values; every other quantizer reads their rounding to
 * x.dtype.
 */
export function quantizeNormed(x: Source, spec: QuantizeSpec): Quantized {
  return spec.quantizer === "fp8-delayed"
    ? quantize({ ...x, dtype: "f32" }, spec)
    : quantize(roundStored(x), spec);
}

/**
 * Quantizes the f32 results of an activation. As `quantizeNormed`, except that a tensor amax is computed from the f32 values; row
 * amaxes are computed from the rounded values.
 */
export function quantizeActivated(x: Source, spec: QuantizeSpec): Quantized {
  switch (spec.quantizer) {
    case "fp8-current":
      return quantize(roundStored(x), { ...spec, amax: amaxOf(x.data) });
    case "nvfp4":
      return quantize(roundStored(x), spec.rht || spec.rowScaled ? spec : { ...spec, amax: amaxOf(x.data) });
    default:
      return quantizeNormed(x, spec);
  }
}

/** The values rounded to their type. */
function roundStored(x: Source): Source {
  if (x.dtype === "f32") return x;
  const layout = SCALAR_FORMATS[x.dtype];
  const data = x.data.map((value) =>
    decode(encode(bitsOf(value), layout, "tiesToEven", "nonfinite"), layout),
  );
  return { ...x, data };
}
