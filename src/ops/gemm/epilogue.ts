/** Epilogues that cuBLASLt fuses by approximation; this library runs them as separate kernels (numerics.md choice 10). */
import type { GemmOutDType } from "../../backends/gemm-args.js";
import { DTypeError } from "../../errors.js";
import { factsOf } from "../../formats/derive.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide } from "../../tensor/require.js";
import { isWide, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { NO_RANDOM } from "../cast/cast.js";
import { execute } from "../execute.js";
import { dequantize } from "../quantize/dequantize.js";
import type { GemmInput } from "./operand.js";

/** target = gelu(pre), rounded once. */
export function gelu(
  pre: Tensor<WideDType>,
  target: Tensor<GemmOutDType>,
  scale: number,
  amax: Tensor<"f32"> | undefined,
): void {
  const { backend } = pre;
  const wide = asWide(target);
  const out = wide ?? new Tensor(backend, "f32", target.shape);
  execute(backend, "activation", { x: pre, kind: "gelu", out });
  if (!wide) narrow(out, target, scale, amax);
}

export interface GradientOutputs {
  readonly amax?: Tensor<"f32">;
  readonly biasGradient?: Tensor<WideDType>;
}

/** target = product * gelu'(pre), the f32 product rounded once; the bias gradient sums the f32 products. */
export function geluGradient(
  product: Tensor<"f32">,
  pre: Tensor<WideDType>,
  target: Tensor<GemmOutDType>,
  scale: number,
  { amax, biasGradient }: GradientOutputs,
): void {
  const { backend } = product;
  const out = asF32(target) ?? new Tensor(backend, "f32", product.shape);
  execute(backend, "activationBackward", { grad: product, x: pre, kind: "gelu", out });
  if (biasGradient) execute(backend, "columnSum", { x: out, out: biasGradient });
  narrow(out, target, scale, amax);
}

/** out = the column sums of the operand called `name`, dequantized first if quantized. */
export function biasGradient(name: "b" | "x", b: GemmInput, out: Tensor<WideDType>): void {
  if (!(b instanceof QuantizedTensor) && !("shape" in b)) {
    throw new DTypeError(
      `gemm: the bias gradient sums ${name}, which is codes with separate scales; dequantize ${name}`,
    );
  }
  const x = b instanceof QuantizedTensor ? dequantize(b, "f32") : requireWide("gemm", name, b);
  execute(out.backend, "columnSum", { x, out });
}

function asWide(x: Tensor<GemmOutDType>): Tensor<WideDType> | undefined {
  return isWide(x.dtype) ? (x as Tensor<WideDType>) : undefined;
}

function asF32(x: Tensor<GemmOutDType>): Tensor<"f32"> | undefined {
  return x.dtype === "f32" ? (x as Tensor<"f32">) : undefined;
}

/** Rounds x to target, bf16, f16 or FP8: wide values, or codes of x * scale with the amax of x. */
function narrow(
  x: Tensor<WideDType>,
  target: Tensor<GemmOutDType>,
  scale: number,
  amax: Tensor<"f32"> | undefined,
): void {
  const { backend } = x;
  if (amax) execute(backend, "amax", { x, out: amax });
  if (target.dtype === "f32") return;
  const overflow = isWide(target.dtype) ? "nonfinite" : "saturate";
  const word = factsOf(target.dtype).word;
  const factor = isWide(target.dtype) ? 1 : scale;
  execute(backend, "encode", {
    x,
    word,
    rounding: "tiesToEven",
    overflow,
    random: NO_RANDOM,
    scale: factor,
    out: target,
  });
}
