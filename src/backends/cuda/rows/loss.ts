/** Losses and their gradients on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { CrossEntropyArgs, MseArgs } from "../../ops.js";
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { DX, SIZE, SOURCE } from "../shared-arguments.js";

const LOGITS = {
  logits: "pointer",
  logitsType: "wide",
  targets: "pointer",
  maximum: "pointer",
  total: "pointer",
  ...SIZE,
  smoothing: "float",
  ignore: "word",
} as const;

const PAIR = { ...SOURCE, target: "pointer", targetType: "wide" } as const;

export const LOSS_CALLS = {
  crossEntropy: { ...LOGITS, loss: "pointer" },
  crossEntropyBackward: { ...LOGITS, grad: "pointer", first: "count", classes: "count", ...DX },
  mse: { ...PAIR, loss: "pointer" },
  mseBackward: { ...PAIR, grad: "pointer", ...DX },
} as const satisfies Declarations;

/** Returns the arguments that cross-entropy and its gradient share. */
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
    // the i32 as a 32-bit pattern
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
    const { grad, first, classes, dx } = args;
    addon.crossEntropyBackward(device, {
      grad: grad.address,
      first,
      classes,
      dx: dx.address,
      dxType: wideOf(dx),
      ...rowsOf(args),
    });
  },
};

/** Returns the arguments that the mean squared error and its gradient share. */
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
