/** The random Hadamard transform. */
import { DTypeError, ShapeError } from "../../errors.js";
import { integer } from "../../options.js";
import { requireTensor } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix } from "../../tensor/shape.js";
import { hasType, Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";

/** The type that is transformed, and that the result has. */
export const HADAMARD_DTYPE = "bf16";

/** The fixed signs of TransformerEngine: bit i set where element i of each 16 is negated (numerics.md §5.5). */
export const RHT_SIGNS = 0xd7e8;

/** A bit for each of 16 elements. */
const signBits = integer(0, 0xffff);

/**
 * xᵀ with each 16 consecutive elements of a row transformed: out [K,M] bf16 of x [M,K] bf16, M a multiple of
 * 16. One tensor-core step from zero (datapath.md §1, Hopper BF16), then rounded to bf16.
 *
 * @throws `DTypeError` for what is not bf16, `ShapeError` for rows that are no multiple of 16, `ArgumentError` for signs
 * that are not 16 bits, `DisposedError` for a tensor that was disposed of.
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
