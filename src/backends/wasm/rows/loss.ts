/** Losses and their gradients on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import type { CrossEntropyArgs, MseArgs } from "../../ops.js";
import { type Lowering, wideOf } from "../lowering.js";

/** Returns the arguments that cross-entropy and its gradient share. */
function rowsOf({ logits, targets, maximum, total, smoothing, ignore }: Omit<CrossEntropyArgs, "loss">) {
  return {
    logits: logits.address,
    type: wideOf(logits),
    targets: targets.address,
    maximum: maximum.address,
    total: total.address,
    columns: asMatrix(logits.shape)[1],
    smoothing,
    ignore,
  };
}

export const crossEntropy: Lowering<"crossEntropy"> = {
  run({ pool }, args) {
    const [total, columns] = asMatrix(args.logits.shape);
    const job = { total, weight: columns * 8 };
    pool.run("crossEntropy", job, { loss: args.loss.address, ...rowsOf(args) });
  },
};

export const crossEntropyBackward: Lowering<"crossEntropyBackward"> = {
  run({ pool }, args) {
    const { grad, logits, first, classes, dx } = args;
    const [total, columns] = asMatrix(logits.shape);
    const gradients = { dx: dx.address, dxType: wideOf(dx), first, classes };
    pool.run(
      "crossEntropyBackward",
      { total, weight: columns * 8 },
      { grad: grad.address, ...rowsOf(args), ...gradients },
    );
  },
};

/** Returns the arguments that the mean squared error and its gradient share. */
function pairOf({ x, target }: Pick<MseArgs, "x" | "target">) {
  return {
    x: x.address,
    xType: wideOf(x),
    target: target.address,
    targetType: wideOf(target),
    columns: asMatrix(x.shape)[1],
  };
}

export const mse: Lowering<"mse"> = {
  run({ pool }, args) {
    const [total, weight] = asMatrix(args.x.shape);
    pool.run("mse", { total, weight }, { loss: args.loss.address, ...pairOf(args) });
  },
};

export const mseBackward: Lowering<"mseBackward"> = {
  run({ pool }, args) {
    const { grad, dx } = args;
    const [total, weight] = asMatrix(args.x.shape);
    const gradients = { dx: dx.address, dxType: wideOf(dx) };
    pool.run("mseBackward", { total, weight }, { grad: grad.address, ...pairOf(args), ...gradients });
  },
};
