/** Losses on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { CrossEntropyArgs, MseArgs } from "../../ops.js";
import { type Lowering, wideOf } from "../lowering.js";

/** The arguments that forward and backward share. */
function rowsOf(args: Omit<CrossEntropyArgs, "loss">) {
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
    addon.crossEntropy(device, { loss: args.loss.address, ...rowsOf(args) });
  },
};

export const crossEntropyBackward: Lowering<"crossEntropyBackward"> = {
  run({ addon, device }, args) {
    const { grad, dx } = args;
    addon.crossEntropyBackward(device, {
      grad: grad.address,
      dx: dx.address,
      dxType: wideOf(dx),
      ...rowsOf(args),
    });
  },
};

/** The arguments that forward and backward of the squared error share. */
function pairOf({ x, target }: Pick<MseArgs, "x" | "target">) {
  const [rows, columns] = asMatrix(x.shape);
  return {
    x: x.address,
    xType: wideOf(x),
    target: target.address,
    targetType: wideOf(target),
    rows,
    columns,
  };
}

export const mse: Lowering<"mse"> = {
  run({ addon, device }, args) {
    addon.mse(device, { loss: args.loss.address, ...pairOf(args) });
  },
};

export const mseBackward: Lowering<"mseBackward"> = {
  run({ addon, device }, args) {
    const { grad, dx } = args;
    addon.mseBackward(device, {
      grad: grad.address,
      dx: dx.address,
      dxType: wideOf(dx),
      ...pairOf(args),
    });
  },
};
