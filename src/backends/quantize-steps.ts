/** Computing values and quantizing them one after the other: what a kernel that does both has to agree with. */
import { factsOf } from "../formats/derive.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import type { QuantizeArgs } from "./ops.js";

type Wide = Tensor<WideDType>;

/**
 * Quantizes what `valuesIn` computes in a type of one's choice, and which as a tensor would be of `dtype`. Which of its
 * roundings is read: numerics.md §7.3.
 */
export function quantizeComputed(
  quantization: QuantizeArgs,
  dtype: WideDType,
  valuesIn: (type: WideDType) => Wide,
): void {
  const { spec, x } = quantization;
  const { backend } = x;
  if (spec.quantizer === "fp8-delayed") {
    backend.run("quantize", { ...quantization, x: valuesIn("f32") });
  } else if (!wantsAmax(quantization)) {
    backend.run("quantize", { ...quantization, x: valuesIn(dtype) });
  } else {
    const values = valuesIn("f32");
    const amax = new Tensor(backend, "f32", [1]);
    backend.run("amax", { x: values, out: amax });
    backend.run("quantize", { ...quantization, x: rounded(values, dtype), amax });
  }
}

/** Whether scales follow from one amax of the whole tensor that is not given: that of the values before they are rounded. */
export function wantsAmax({ spec, amax }: { readonly spec: QuantizeSpec; readonly amax?: Wide | undefined }) {
  return !amax && (spec.quantizer === "fp8-current" || (spec.quantizer === "nvfp4" && !spec.rht));
}

function rounded(x: Wide, dtype: WideDType): Wide {
  if (dtype === "f32") return x;
  const out = new Tensor(x.backend, dtype, x.shape);
  const random = { seed: 0n, offset: 0n };
  x.backend.run("encode", {
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
