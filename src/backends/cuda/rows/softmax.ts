/** Softmax and its gradient on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { DX, GRAD, OUT, SIZE, SOURCE } from "../shared-arguments.js";

export const SOFTMAX_CALLS = {
  softmax: { ...SOURCE, period: "count", scale: "float", ...OUT },
  softmaxBackward: {
    ...SIZE,
    period: "count",
    ...GRAD,
    y: "pointer",
    yType: "wide",
    scale: "float",
    ...DX,
  },
} as const satisfies Declarations;

/**
 * Returns the sizes that softmax and its gradient share. `period` is the number of rows per matrix if the causal mask is used,
 * else 0.
 */
function sizesOf({ shape }: Tensor, causal: boolean) {
  const [rows, columns] = asMatrix(shape);
  return { rows, columns, period: causal ? (shape.at(-2) ?? 1) : 0 };
}

export const softmax: Lowering<"softmax"> = {
  run({ addon, device }, { x, scale, causal, out }) {
    const { rows, columns, period } = sizesOf(x, causal);
    addon.softmax(device, {
      rows,
      columns,
      period,
      x: x.address,
      xType: wideOf(x),
      scale,
      out: out.address,
      outType: wideOf(out),
    });
  },
};

export const softmaxBackward: Lowering<"softmaxBackward"> = {
  run({ addon, device }, { grad, y, scale, causal, dx }) {
    const { rows, columns, period } = sizesOf(y, causal);
    addon.softmaxBackward(device, {
      rows,
      columns,
      period,
      grad: grad.address,
      gradType: wideOf(grad),
      y: y.address,
      yType: wideOf(y),
      scale,
      dx: dx.address,
      dxType: wideOf(dx),
    });
  },
};
