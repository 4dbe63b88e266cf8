/** Softmax and its gradient on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

/** The rows of all matrices. `period` is the number of rows of a matrix under the causal mask, or 0 without a mask. */
const ROWS = { ...SIZE, period: "count", scale: "float" } as const;

export const SOFTMAX_CALLS = {
  softmax: { ...ROWS, x: reads.wide("rows * columns"), out: writes.wide("rows * columns") },
  softmaxBackward: {
    ...ROWS,
    grad: reads.wide("rows * columns"),
    y: reads.wide("rows * columns", "The result of softmax."),
    dx: writes.wide("rows * columns"),
  },
} as const satisfies Declarations;

function sizesOf({ shape }: Tensor, causal: boolean) {
  const [rows, columns] = asMatrix(shape);
  return { rows, columns, period: causal ? (shape.at(-2) ?? 1) : 0 };
}

export const softmax: Lowering<"softmax"> = {
  run({ addon, device }, { x, scale, causal, out }) {
    addon.softmax(device, { scale, x, out, ...sizesOf(x, causal) });
  },
};

export const softmaxBackward: Lowering<"softmaxBackward"> = {
  run({ addon, device }, { grad, y, scale, causal, dx }) {
    addon.softmaxBackward(device, { scale, grad, y, dx, ...sizesOf(y, causal) });
  },
};
