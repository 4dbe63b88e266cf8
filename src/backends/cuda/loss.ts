/** Softmax cross-entropy on a GPU. */
import { asMatrix } from "../../tensor/shape.js";
import type { NativeArgs } from "../addon.js";
import type { CrossEntropyArgs } from "../ops.js";
import { type Lowering, wideOf } from "./lowering.js";

/** What both directions take. */
function rowsOf(args: Omit<CrossEntropyArgs, "loss">): NativeArgs {
  const { logits, targets, smoothing, ignore, maximum, total } = args;
  const [rows, columns] = asMatrix(logits.shape);
  return {
    logits: logits.address,
    logitsType: wideOf(logits),
    targets: targets.address,
    maximum: maximum.address,
    total: total.address,
    rows,
    columns,
    smoothing,
    // the bits of an i32
    ignore: ignore >>> 0,
  };
}

export const crossEntropy: Lowering<"crossEntropy"> = {
  run({ addon, device }, args) {
    addon.crossEntropy(device, { ...rowsOf(args), loss: args.loss.address });
  },
};

export const crossEntropyBackward: Lowering<"crossEntropyBackward"> = {
  run({ addon, device }, args) {
    const { grad, dx } = args;
    addon.crossEntropyBackward(device, {
      ...rowsOf(args),
      grad: grad.address,
      dx: dx.address,
      dxType: wideOf(dx),
    });
  },
};
