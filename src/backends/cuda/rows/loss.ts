/** Losses and their gradients on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { CrossEntropyArgs } from "../../ops.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

const LOGITS = {
  ...SIZE,
  logits: reads.wide("rows * columns"),
  targets: reads.i32("rows", "A row whose target equals `ignore` has zero loss and zero gradient."),
  smoothing: "float",
  ignore: "int",
} as const;

const PAIR = { ...SIZE, x: reads.wide("rows * columns"), target: reads.wide("rows * columns") } as const;

export const LOSS_CALLS = {
  crossEntropy: {
    ...LOGITS,
    loss: writes.f32("rows"),
    maximum: writes.f32("rows", "The largest logit."),
    total: writes.f32("rows", "The sum of e^(logit - maximum)."),
  },
  /** The columns are those of the classes from `first` on; `classes` is the number of all classes. */
  crossEntropyBackward: {
    ...LOGITS,
    maximum: reads.f32("rows"),
    total: reads.f32("rows"),
    grad: reads.f32("rows", "The gradient of each row's loss."),
    first: "count",
    classes: "count",
    dx: writes.wide("rows * columns"),
  },
  mse: { ...PAIR, loss: writes.f32("rows") },
  mseBackward: {
    ...PAIR,
    grad: reads.f32("rows", "The gradient of each row's loss."),
    dx: writes.wide("rows * columns"),
  },
} as const satisfies Declarations;

/** Returns the arguments that cross-entropy and its gradient share. */
function rowsOf({ logits, targets, smoothing, ignore, maximum, total }: Omit<CrossEntropyArgs, "loss">) {
  const [rows, columns] = asMatrix(logits.shape);
  return { rows, columns, logits, targets, smoothing, ignore, maximum, total };
}

export const crossEntropy: Lowering<"crossEntropy"> = {
  run({ addon, device }, args) {
    addon.crossEntropy(device, { loss: args.loss, ...rowsOf(args) });
  },
};

export const crossEntropyBackward: Lowering<"crossEntropyBackward"> = {
  run({ addon, device }, args) {
    const { grad, first, classes, dx } = args;
    addon.crossEntropyBackward(device, { grad, first, classes, dx, ...rowsOf(args) });
  },
};

export const mse: Lowering<"mse"> = {
  run({ addon, device }, { x, target, loss }) {
    const [rows, columns] = asMatrix(x.shape);
    addon.mse(device, { rows, columns, x, target, loss });
  },
};

export const mseBackward: Lowering<"mseBackward"> = {
  run({ addon, device }, { grad, x, target, dx }) {
    const [rows, columns] = asMatrix(x.shape);
    addon.mseBackward(device, { rows, columns, x, target, grad, dx });
  },
};
