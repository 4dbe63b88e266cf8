/** The random Hadamard transform. */
import { DTypeError } from "../../errors.js";
import { integer } from "../../options.js";
import { requireTensor } from "../../tensor/require.js";
import { asMatrix, roundUp, type WideDType } from "../../tensor/shape.js";
import { hasType, Tensor } from "../../tensor/tensor.js";
import { tensor } from "../create.js";
import { compute } from "../execute.js";
import { batchedGemm } from "../gemm/batched.js";

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
  const out = new Tensor(backend, HADAMARD_DTYPE, [columns, roundUp(rows, GROUP)]);
  return compute("hadamard", { x, signs, out });
}

/**
 * Applies the inverse transform to each 16 consecutive rows of a column of y [M, K]; M is a multiple of 16. Each result is the
 * exact sum rounded to f32, and then to `dtype` (numerics.md §5.5). The open scope owns the result, [M, K].
 *
 * @shared
 */
export function inverseHadamard(y: Tensor<"f32">, signs: number, dtype: WideDType): Tensor<WideDType> {
  const [rows, columns] = asMatrix(y.shape);
  // the matrices below grow with the number of rows, which is not bounded for an empty tensor
  if (columns === 0) return new Tensor(y.backend, dtype, [rows, columns]);
  const groups = rows / GROUP;
  const inverse = inverseMatrix(signs);
  const repeated = Float32Array.from(
    { length: groups * inverse.length },
    (_, i) => inverse[i % inverse.length] as number,
  );
  const b = tensor(y.backend, repeated, [groups, GROUP, GROUP]);
  const a = y.reshape([groups, GROUP, columns]);
  const { out } = batchedGemm({ a, b, layout: "NN", datapath: "exact", outDtype: dtype });
  return out.reshape([rows, columns]);
}

/** The matrix of the inverse transform, by rows: (−1)^popcount(r & c) / 4 in row r and column c, negated in rows with a sign. */
function inverseMatrix(signs: number): readonly number[] {
  return Array.from({ length: GROUP * GROUP }, (_, i) => {
    const [r, c] = [Math.floor(i / GROUP), i % GROUP];
    let negated = (signs >> r) & 1;
    for (let common = r & c; common > 0; common >>= 1) negated ^= common & 1;
    return negated ? -0.25 : 0.25;
  });
}
