/** The norms of the heads of queries and keys. */
import type { Backend } from "../../backends/backend.js";
import { add, cast, multiply, rsqrt } from "../../functional/elementwise.js";
import { sum } from "../../functional/sum.js";
import { tensor } from "../../ops/create.js";
import type { Variable } from "../../tape/variable.js";
import type { ModuleOptions } from "../module.js";
import { LayerNorm, RMSNorm } from "../norm.js";
import type { MultiheadAttentionOptions } from "./multihead-options.js";

/** A norm of the last dimension, which is one head. */
export interface HeadNorm {
  forward(x: Variable): Variable;
}

type HeadNormOptions = ModuleOptions &
  Pick<MultiheadAttentionOptions, "zeroCenteredGamma" | "group"> & { readonly eps: number };

/**
 * Creates a norm with parameters for heads of `width` elements. Each rank normalizes its own heads, so the gradients of the
 * norm's parameters are sums over ranks.
 */
export function normOfHeads(
  backend: Backend,
  width: number,
  kind: "LayerNorm" | "RMSNorm",
  { group, ...options }: HeadNormOptions,
): LayerNorm | RMSNorm {
  const Norm = kind === "RMSNorm" ? RMSNorm : LayerNorm;
  const ranks = group ? { group, sequenceParallel: true } : {};
  return new Norm(backend, width, { ...options, ...ranks });
}

/**
 * Returns x / sqrt(sum of x^2 + eps) over the last dimension, in the dtype of x, as TransformerEngine's `L2Normalization`. The
 * squares, their sum and the factor are f32; the product is rounded once (numerics.md §10.8).
 */
export function l2Normalize(x: Variable, eps: number): Variable {
  const wide = cast(x, "f32");
  const squares = sum(multiply(wide, wide), { dim: -1, keepdim: true });
  const factor = rsqrt(add(squares, tensor(x.backend, Float32Array.of(eps), [1])));
  return multiply(x, factor);
}
