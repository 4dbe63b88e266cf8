/** Softmax on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import { type Lowering, operand } from "../lowering.js";

/** Rows of all matrices, their length, and the rows of one matrix under the causal mask, else 0. */
function sizesOf(
  { shape }: Tensor,
  causal: boolean,
): readonly [rows: number, columns: number, period: number] {
  const [rows, columns] = asMatrix(shape);
  return [rows, columns, causal ? (shape.at(-2) ?? 1) : 0];
}

export const softmax: Lowering<"softmax"> = {
  run({ pool }, { x, scale, causal, out }) {
    const [total, columns, period] = sizesOf(x, causal);
    const head = [...operand(x), ...operand(out), columns, period, scale];
    pool.run("softmax", { total, weight: columns * 8 }, (scratch) => [...head, scratch]);
  },
};

export const softmaxBackward: Lowering<"softmaxBackward"> = {
  run({ pool }, { grad, y, scale, causal, dx }) {
    const [total, columns, period] = sizesOf(y, causal);
    const head = [...operand(grad), ...operand(y), ...operand(dx), columns, period, scale];
    pool.run("softmaxBackward", { total, weight: columns * 2 }, (scratch) => [...head, scratch]);
  },
};
