/** Softmax and its gradient on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import { type Lowering, wideOf } from "../lowering.js";

/** Returns the number of rows, their length, and `period`: the number of rows per matrix if the causal mask is used, else 0. */
function sizesOf({ shape }: Tensor, causal: boolean) {
  const [total, columns] = asMatrix(shape);
  return { total, columns, period: causal ? (shape.at(-2) ?? 1) : 0 };
}

export const softmax: Lowering<"softmax"> = {
  run({ pool }, { x, scale, causal, out }) {
    const { total, columns, period } = sizesOf(x, causal);
    const tensors = { x: x.address, type: wideOf(x), out: out.address, outType: wideOf(out) };
    pool.run("softmax", { total, weight: columns * 8 }, { columns, period, scale, ...tensors });
  },
};

export const softmaxBackward: Lowering<"softmaxBackward"> = {
  run({ pool }, { grad, y, scale, causal, dx }) {
    const { total, columns, period } = sizesOf(y, causal);
    pool.run(
      "softmaxBackward",
      { total, weight: columns * 2 },
      {
        grad: grad.address,
        gradType: wideOf(grad),
        y: y.address,
        yType: wideOf(y),
        dx: dx.address,
        dxType: wideOf(dx),
        columns,
        period,
        scale,
      },
    );
  },
};
