/** Values that a kernel computes and quantizes without storing them: which of their roundings a quantizer reads. */
import { SCALAR_FORMATS } from "../../src/formats/scalar.js";
import { type Quantized, type QuantizeSpec, quantize, type Source } from "./quantize.js";
import { bitsOf } from "./rational.js";
import { decode, encode } from "./scalar.js";
import { amaxOf } from "./scale.js";

/** Quantizes f32 values that as a tensor would be of x.dtype, by TransformerEngine's table of fused casts. */
export function quantizeComputed(x: Source, spec: QuantizeSpec): Quantized {
  switch (spec.quantizer) {
    case "fp8-delayed":
      return quantize({ ...x, dtype: "f32" }, spec);
    case "fp8-current":
      return quantize(stored(x), { ...spec, amax: amaxOf(x.data) });
    case "nvfp4":
      return quantize(stored(x), spec.rht ? spec : { ...spec, amax: amaxOf(x.data) });
    default:
      return quantize(stored(x), spec);
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
