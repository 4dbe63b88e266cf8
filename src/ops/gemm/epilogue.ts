/**
 * Epilogues that cuBLASLt fuses only approximately. This library runs them as separate kernels after the product (numerics.md
 * choice 10).
 */
import type { GemmOutDType } from "../../backends/ops/gemm.js";
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

/**
 * Writes gelu(pre) to target. An f32, bf16 or f16 target is rounded once. An FP8 target gets the codes of the f32 result times
 * `scale`; `amax`, if given, is set to the maximum magnitude of the f32 result.
 *
 * @shared
 */
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

/** @shared */
export interface GradientOutputs {
  readonly amax?: Tensor<"f32">;
  readonly biasGradient?: Tensor<WideDType>;
}

/**
 * Writes product * gelu'(pre) to target. It is computed in f32 and rounded to target as `gelu` does. `biasGradient`, if given,
 * is set to the column sums of the f32 values, `amax` to their maximum magnitude.
 *
 * @shared
 */
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

/**
 * Sets `out` to the column sums of operand b. A quantized operand is dequantized first. `name` is the operand's name in error
 * messages.
 *
 * @shared
 */
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

/**
 * Rounds x to target. An f32, bf16 or f16 target gets the values; an FP8 target gets the codes of x * scale. `amax`, if given,
 * is set to max |x|.
 */
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
