/** The norm of all gradients, and the factor that clips them. */
import { ArgumentError } from "../../errors.js";
import { atLeastZero, needed, optionsOf, ownList } from "../../options.js";
import { requireF32, requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, compute, execute, executeEach } from "../execute.js";

/** Options of `gradNorm`. */
export interface GradNormOptions {
  /** The norm above which gradients are scaled down. It is finite, at least 0, and rounded to f32. */
  readonly maxNorm: number;
}

/** The results of `gradNorm`, two tensors [1] on the device. */
export interface GradNorm {
  /** The 2-norm of all gradients together, f32 [1]. */
  readonly norm: Tensor<"f32">;
  /** The clipping factor, f32 [1], for the argument `gradScale` of `sgd` and `adamw`. */
  readonly factor: Tensor<"f32">;
}

const checkOptions = optionsOf<GradNormOptions>({ maxNorm: needed(atLeastZero) });

/**
 * Computes the 2-norm over all elements of `grads` (f32, bf16 or f16), and the clipping factor min(1, maxNorm / (norm + 1e-6))
 * of `torch.nn.utils.clip_grad_norm_`. The order of the sums is in numerics.md §9.3. Squares are computed in f32: an element
 * beyond 2^64 in magnitude makes the norm infinite and the factor 0. A NaN makes both NaN. Without elements the norm is 0.
 *
 * @throws `ArgumentError` for an empty list, tensors on different backends or an invalid maxNorm, `DTypeError` for a gradient
 * that is not an f32, bf16 or f16 tensor, `DisposedError` for a disposed tensor.
 */
export function gradNorm(grads: readonly Tensor[], options: GradNormOptions): GradNorm {
  const ownOptions = checkOptions("gradNorm", options);
  using scope = new Scope();
  const result = normOf(squareSums(grads), ownOptions);
  for (const each of [result.norm, result.factor]) scope.keep(each);
  return result;
}

/**
 * Returns the sum of the squares of each gradient, f32 [gradients]. Throws as `gradNorm` does.
 *
 * @shared
 */
export function squareSums(grads: readonly Tensor[]): Tensor<"f32"> {
  const sources = ownList(
    "gradNorm",
    "grads",
    grads,
    (grad, i) => requireWide("gradNorm", `grads[${i}]`, grad),
    "an array of tensors",
  );
  if (sources.length === 0) throw new ArgumentError("gradNorm: there are no gradients; give at least one");
  const backend = commonBackend("gradNorm", ...sources);
  using scope = new Scope();
  const sums = new Tensor(backend, "f32", [sources.length]);
  executeEach(
    backend,
    "squareSum",
    sources.map((x, i) => ({ x, out: sums.view(i, [1]) })),
    true,
  );
  return scope.keep(sums);
}

/** @shared The number of elements of a piece. The squares of each piece are added first, then the sums of the pieces. */
export const PIECE = 4096;

/**
 * The sum of the squares of each piece of x, f32 [pieces]. Throws `DTypeError` for anything but an f32, bf16 or f16 tensor,
 * `DisposedError` for a disposed tensor.
 *
 * @shared
 */
export function pieceSums(x: Tensor): Tensor<"f32"> {
  const source = requireWide("pieceSums", "x", x);
  using scope = new Scope();
  const sums = new Tensor(source.backend, "f32", [Math.ceil(source.size / PIECE)]);
  execute(source.backend, "pieceSums", { x: source, sums });
  return scope.keep(sums);
}

/**
 * The sum of the squares of a tensor, from the sums of its pieces, f32 [1]. Throws `DTypeError` for anything but an f32 tensor,
 * `DisposedError` for a disposed tensor.
 *
 * @shared
 */
export function sumPieces(sums: Tensor): Tensor<"f32"> {
  const source = requireF32("sumPieces", "sums", sums);
  const out = new Tensor(source.backend, "f32", [1]);
  return compute("sumPieces", { sums: source, out });
}

/**
 * Returns the norm, the square root of the sum of `sums`, and the factor that clips gradients to it.
 *
 * @shared
 */
export function normOf(sums: Tensor<"f32">, options: GradNormOptions): GradNorm {
  const { backend } = sums;
  const maxNorm = Math.fround(options.maxNorm);
  const norm = new Tensor(backend, "f32", [1]);
  const factor = new Tensor(backend, "f32", [1]);
  execute(backend, "clipFactor", { sums, maxNorm, norm, factor });
  return { norm, factor };
}
