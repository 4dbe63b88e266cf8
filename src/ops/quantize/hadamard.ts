/** The random Hadamard transform. */
import { DTypeError, ShapeError } from "../../errors.js";
import { integer } from "../../options.js";
import { requireTensor } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix } from "../../tensor/shape.js";
import { hasType, Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";

/** @shared The dtype of the input and of the result of the transform. */
export const HADAMARD_DTYPE = "bf16";

/**
 * The fixed signs of TransformerEngine. If bit i is set, element i of each 16 is negated before the transform (numerics.md
 * §5.5).
 */
export const RHT_SIGNS = 0xd7e8;

/** Checks the signs: an integer of 16 bits, one for each of 16 elements. */
const signBits = integer(0, 0xffff);

/**
 * Returns the transpose of x [M, K] with the random Hadamard transform applied to each 16 consecutive elements of a row of xᵀ.
 * The result is [K, M]; both are bf16, and M is a multiple of 16. Each result is one tensor-core step with a zero accumulator
 * (datapath.md §1, Hopper BF16), rounded to bf16.
 *
 * @throws `DTypeError` for an argument that is not a bf16 tensor, `ShapeError` for a number of rows that is not a multiple of
 * 16, `ArgumentError` for signs that are not an integer of 16 bits, `DisposedError` for a disposed tensor.
 */
export function hadamard(x: Tensor, signs: number = RHT_SIGNS): Tensor<"bf16"> {
  const { backend } = requireTensor("hadamard", "x", x);
  signBits("hadamard", "signs", signs);
  if (!hasType(x, HADAMARD_DTYPE))
    throw new DTypeError(`hadamard: x is ${x.dtype}; it must be bf16; cast it`);
  const [rows, columns] = asMatrix(x.shape);
  if (rows % 16 !== 0) throw new ShapeError(`hadamard: ${rows} rows are not a multiple of 16; pad them`);
  using scope = new Scope();
  const out = new Tensor(backend, HADAMARD_DTYPE, [columns, rows]);
  execute(backend, "hadamard", { x, signs, out });
  return scope.keep(out);
}
