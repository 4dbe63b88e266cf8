/** Computing values and then quantizing them: the definition that fused kernels must match. */
import { blockFormat, hasGivenScale } from "../../formats/block.js";
import { factsOf } from "../../formats/derive.js";
import type { QuantizeSpec } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import type { QuantizeArgs } from "../ops.js";

type Wide = Tensor<WideDType>;

/** Computes the values in the given type. */
type ValuesIn = (type: WideDType) => Wide;

/**
 * Quantizes the result of an activation whose unfused type is `dtype`. The amax of the whole tensor is that of the f32 values
 * (numerics.md §7.3).
 */
export function quantizeActivated(quantization: QuantizeArgs, dtype: WideDType, valuesIn: ValuesIn): void {
  if (!wantsAmax(quantization)) {
    quantizeNormed(quantization, dtype, valuesIn);
    return;
  }
  const { backend } = quantization.x;
  const values = valuesIn("f32");
  const amax = new Tensor(backend, "f32", [1]);
  backend.run("amax", { x: values, out: amax });
  backend.run("quantize", { ...quantization, x: rounded(values, dtype), amax });
}

/** Quantizes the result of a norm: only a given scale multiplies f32 values (numerics.md §7.3). */
export function quantizeNormed(quantization: QuantizeArgs, dtype: WideDType, valuesIn: ValuesIn): void {
  const { spec, x } = quantization;
  x.backend.run("quantize", {
    ...quantization,
    x: valuesIn(hasGivenScale(spec) ? "f32" : dtype),
  });
}

/** Whether scales follow from an amax of the whole tensor, which is not given. */
export function wantsAmax({ spec, amax }: { readonly spec: QuantizeSpec; readonly amax?: Wide | undefined }) {
  const { scaleSource, tensorAmax } = blockFormat(spec.quantizer);
  return !amax && (scaleSource === "whole" || (tensorAmax && !spec.rht));
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
