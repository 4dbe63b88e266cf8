/** The norm of all gradients, and the factor that clips it. */
import { ArgumentError } from "../../errors.js";
import { atLeastZero, describe, needed, optionsOf } from "../../options.js";
import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute } from "../execute.js";

/** Options of `gradNorm`. */
export interface GradNormOptions {
  /** The norm beyond which gradients are scaled down, finite and at least 0; rounded to f32. */
  readonly maxNorm: number;
}

/** The results of `gradNorm`, [1] each. */
export interface GradNorm {
  /** The 2-norm of all gradients together, f32 [1]. */
  readonly norm: Tensor<"f32">;
  /** The `gradScale` argument of `sgd` and `adamw`. */
  readonly factor: Tensor<"f32">;
}

const checkOptions = optionsOf<GradNormOptions>({ maxNorm: needed(atLeastZero) });

/**
 * The 2-norm over all elements of `grads`, f32, bf16 or f16, and min(1, maxNorm / (norm + 1e-6)), the factor of
 * torch.nn.utils.clip_grad_norm_; order of the sums: numerics.md §9.3. Both stay on the device. Squares are f32: magnitudes
 * beyond 2^64 make the norm infinite and the factor 0; a NaN makes both NaN. Without elements the norm is 0.
 *
 * @throws `ArgumentError` for an empty list, tensors on different backends and a maxNorm outside its domain, `DTypeError` for
 * anything but wide tensors.
 */
export function gradNorm(grads: readonly Tensor[], options: GradNormOptions): GradNorm {
  checkOptions("gradNorm", options);
  const maxNorm = Math.fround(options.maxNorm);
  if (!Array.isArray(grads))
    throw new ArgumentError(`gradNorm: grads is ${describe(grads)}; it must be an array of tensors`);
  if (grads.length === 0) throw new ArgumentError("gradNorm: there are no gradients; give at least one");
  const sources = Array.from(grads, (grad, i) => requireWide("gradNorm", `grads[${i}]`, grad));
  const backend = commonBackend("gradNorm", ...sources);
  using scope = new Scope();
  const sums = new Tensor(backend, "f32", [grads.length]);
  for (const [i, x] of sources.entries()) execute(backend, "squareSum", { x, out: sums.view(i, [1]) });
  const norm = new Tensor(backend, "f32", [1]);
  const factor = new Tensor(backend, "f32", [1]);
  execute(backend, "clipFactor", { sums, maxNorm, norm, factor });
  return { norm: scope.keep(norm), factor: scope.keep(factor) };
}
