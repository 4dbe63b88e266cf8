/** The random Hadamard transform. */
import { DTypeError } from "../../errors.js";
import { integer } from "../../options.js";
import { requireTensor } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, roundUp } from "../../tensor/shape.js";
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

/** The number of elements that are transformed together. */
const GROUP = 16;

/**
 * Returns the transpose of x [M, K] with the random Hadamard transform applied to each 16 consecutive elements of a row of xᵀ.
 * If M is not a multiple of 16, zeros fill the last 16. The result is [K, M rounded up to a multiple of 16]; both are bf16. Each
 * result is one tensor-core step with a zero accumulator (datapath.md §1, Hopper BF16), rounded to bf16.
 *
 * @throws `DTypeError` for an argument that is not a bf16 tensor, `ArgumentError` for signs that are not an integer of 16 bits,
 * `DisposedError` for a disposed tensor.
 */
export function hadamard(x: Tensor, signs: number = RHT_SIGNS): Tensor<"bf16"> {
  const { backend } = requireTensor("hadamard", "x", x);
  signBits("hadamard", "signs", signs);
  if (!hasType(x, HADAMARD_DTYPE))
    throw new DTypeError(`hadamard: x is ${x.dtype}; it must be bf16; cast it`);
  const [rows, columns] = asMatrix(x.shape);
  using scope = new Scope();
  const out = new Tensor(backend, HADAMARD_DTYPE, [columns, roundUp(rows, GROUP)]);
  execute(backend, "hadamard", { x, signs, out });
  return scope.keep(out);
}
