/** The approximate instructions of a GPU's special-function unit, and CUDA's math functions. */
import { DTypeError } from "../../errors.js";
import { SPECIAL_FUNCTIONS, type SpecialFunctionName } from "../../formats/special-functions.js";
import { needed, oneOf, optionsOf } from "../../options.js";
import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";

/** Options of `specialFunction`. */
export interface SpecialFunctionOptions {
  /**
   * The instruction, by its name in PTX: `rsqrt.approx.ftz.f32`; or the function: `expf`, or `expf.fast` under -use_fast_math.
   * `SPECIAL_FUNCTIONS` has them all.
   */
  readonly function: SpecialFunctionName;
}

const checkOptions = optionsOf<SpecialFunctionOptions>({
  function: needed(oneOf(Object.keys(SPECIAL_FUNCTIONS))),
});

/**
 * Returns what an approximate instruction of a GPU's special-function unit gives for each element of x, to the bit, as an H100
 * and an H200 compute it (numerics.md §7.11), or what a math function of CUDA gives as nvcc 13.0 compiles it
 * (docs/special-functions.md). The result has the shape and dtype of x, which is that of the instruction. NaN is
 * 7FFFFFFF, or 7FFF in 16 bits. `SPECIAL_FUNCTIONS` says on which chips an instruction was measured; on a GPU, `supports` says
 * what is not verified.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, or not of the instruction's dtype, `ArgumentError` for an
 * invalid option value, `DisposedError` for a disposed tensor.
 */
export function specialFunction(x: Tensor, options: SpecialFunctionOptions): Tensor<WideDType> {
  const source = requireWide("specialFunction", "x", x);
  const { function: name } = checkOptions("specialFunction", options);
  const { dtype } = SPECIAL_FUNCTIONS[name];
  if (source.dtype !== dtype)
    throw new DTypeError(`specialFunction: x is ${source.dtype}; ${name} takes ${dtype}`);
  using scope = new Scope();
  const out = new Tensor(x.backend, dtype, x.shape);
  execute(x.backend, "specialFunction", { x: source, function: name, out });
  return scope.keep(out);
}
