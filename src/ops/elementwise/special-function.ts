/** The approximate instructions of a GPU's special-function unit, and CUDA's math functions. */
import { ArgumentError, DTypeError, ShapeError } from "../../errors.js";
import {
  hasTwoArguments,
  SPECIAL_FUNCTIONS,
  type SpecialFunctionName,
} from "../../formats/special-functions.js";
import { anything, needed, oneOf, optionsOf } from "../../options.js";
import { requireF32, requireTogether, requireWide } from "../../tensor/require.js";
import { sameShape, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { compute } from "../execute.js";

/** Options of `specialFunction`. */
export interface SpecialFunctionOptions {
  /**
   * The instruction, by its name in PTX: `rsqrt.approx.ftz.f32`; or the function: `expf`, or `expf.fast` under -use_fast_math.
   * `SPECIAL_FUNCTIONS` lists all names.
   */
  readonly function: SpecialFunctionName;
  /** The second argument of a binary function (`powf`, `divide`): an f32 tensor in the shape of x. */
  readonly y?: Tensor;
}

const checkOptions = optionsOf<SpecialFunctionOptions>({
  function: needed(oneOf(Object.keys(SPECIAL_FUNCTIONS))),
  y: anything,
});

/** Returns the checked second argument of a binary function, or undefined for a unary function. */
function secondOf(x: Tensor, { function: name, y }: SpecialFunctionOptions): Tensor<"f32"> | undefined {
  if (hasTwoArguments(name) !== (y !== undefined))
    throw new ArgumentError(
      `specialFunction: ${name} has ${y === undefined ? "two arguments; pass the second as y" : "one argument, and y was passed"}`,
    );
  if (y === undefined) return undefined;
  const second = requireF32("specialFunction", "y", y);
  requireTogether("specialFunction", x, second);
  if (sameShape(x.shape, second.shape)) return second;
  throw new ShapeError(
    `specialFunction: x is [${x.shape}] and y [${second.shape}]; they must have one shape`,
  );
}

/**
 * Computes an approximate instruction of a GPU's special-function unit for each element of x, bitwise equal to an H100 and an
 * H200 (numerics.md §7.11), or a math function of CUDA as nvcc 13.0 compiles it (docs/special-functions.md). The result has the
 * shape and dtype of x, which must be the dtype of the instruction. NaN is 7FFFFFFF, or 7FFF in 16 bits. `SPECIAL_FUNCTIONS` says
 * on which chips an instruction was measured; on a GPU, `supports` says what is not verified.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, or not of the instruction's dtype, `ShapeError` for y of
 * another shape than x, `ArgumentError` for an invalid option value, a missing y or one that the function does not take,
 * `DisposedError` for a disposed tensor.
 */
export function specialFunction(x: Tensor, options: SpecialFunctionOptions): Tensor<WideDType> {
  const source = requireWide("specialFunction", "x", x);
  const checked = checkOptions("specialFunction", options);
  const { function: name } = checked;
  const { dtype } = SPECIAL_FUNCTIONS[name];
  if (source.dtype !== dtype)
    throw new DTypeError(`specialFunction: x is ${source.dtype}; ${name} takes ${dtype}`);
  const y = secondOf(source, checked);
  const out = new Tensor(x.backend, dtype, x.shape);
  return compute("specialFunction", { x: source, function: name, y, out });
}
