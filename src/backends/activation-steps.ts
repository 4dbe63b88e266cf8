/** An activation and a quantization one after the other: what a kernel that does both has to agree with. */
import { factsOf } from "../formats/derive.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import type { ActivationQuantizeArgs } from "./ops.js";

/** Rows and columns of what an activation, gated or not, gives or, backward, of the gradient of what it takes. */
export function resultSize({ x, gated, grad }: ActivationQuantizeArgs): readonly [number, number] {
  const [rows, columns] = asMatrix(x.shape);
  return [rows, gated && !grad ? columns / 2 : columns];
}

/** Runs `activationQuantize` by other operations of the backend of x. What is rounded first: numerics.md §7.3. */
export function runSteps(args: ActivationQuantizeArgs): void {
  const { kind, gated, clamp, grad, ...quantization } = args;
  const { x, spec } = quantization;
  const { backend } = x;
  const { dtype } = grad ?? x;
  using _scope = new Scope();

  const valuesIn = (type: WideDType): Tensor<WideDType> => {
    const out = new Tensor(backend, type, resultSize(args));
    if (gated && grad) backend.run("gatedBackward", { x, kind, clamp, grad, out });
    else if (gated) backend.run("gated", { x, kind, clamp, out });
    else if (grad) backend.run("activationBackward", { x, kind, grad, out });
    else backend.run("activation", { x, kind, out });
    return out;
  };

  if (spec.quantizer === "fp8-delayed") {
    backend.run("quantize", { ...quantization, x: valuesIn("f32") });
  } else if (quantization.amax || !hasTensorAmax(spec)) {
    backend.run("quantize", { ...quantization, x: valuesIn(dtype) });
  } else {
    const values = valuesIn("f32");
    const amax = new Tensor(backend, "f32", [1]);
    backend.run("amax", { x: values, out: amax });
    backend.run("quantize", { ...quantization, x: rounded(values, dtype), amax });
  }
}

/** Whether scales follow from one amax of the whole tensor, which is that of the values before they are rounded. */
function hasTensorAmax({ quantizer, rht }: QuantizeSpec): boolean {
  return quantizer === "fp8-current" || (quantizer === "nvfp4" && !rht);
}

function rounded(x: Tensor<WideDType>, dtype: WideDType): Tensor<WideDType> {
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
