/** Values that a kernel computes and quantizes without storing them: which of their roundings a quantizer reads. */
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { bitsOf } from "../core/rational.js";
import { decode, encode } from "../core/scalar.js";
import { amaxOf } from "../core/scale.js";
import { type Quantized, type QuantizeSpec, quantize, type Source } from "./quantize.js";

/** Quantizes a norm's f32 values that as a tensor would be of x.dtype: a scale that is given multiplies them as they are. */
export function quantizeNormed(x: Source, spec: QuantizeSpec): Quantized {
  return spec.quantizer === "fp8-delayed"
    ? quantize({ ...x, dtype: "f32" }, spec)
    : quantize(stored(x), spec);
}

/** The same of an activation's values, whose amax, where one follows from the whole tensor, is that of the f32 values. */
export function quantizeActivated(x: Source, spec: QuantizeSpec): Quantized {
  switch (spec.quantizer) {
    case "fp8-current":
      return quantize(stored(x), { ...spec, amax: amaxOf(x.data) });
    case "nvfp4":
      return quantize(stored(x), spec.rht ? spec : { ...spec, amax: amaxOf(x.data) });
    default:
      return quantizeNormed(x, spec);
  }
}

/** The values as a tensor of their type has them. */
function stored(x: Source): Source {
  if (x.dtype === "f32") return x;
  const layout = SCALAR_FORMATS[x.dtype];
  const data = x.data.map((value) =>
    decode(encode(bitsOf(value), layout, "tiesToEven", "nonfinite"), layout),
  );
  return { ...x, data };
}
