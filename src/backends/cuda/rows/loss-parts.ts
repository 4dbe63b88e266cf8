/** The steps of a cross-entropy whose columns are sharded over ranks, on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { type Declarations, reads, writes } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

export const LOSS_PARTS_CALLS = {
  /** `first` is the class of the first column. With `smooths` there is a third row of sums, of logit - maximum. */
  lossSums: {
    ...SIZE,
    logits: reads.wide("rows * columns"),
    targets: reads.i32("rows"),
    first: "count",
    maximum: reads.f32("rows", "The largest logit of all classes."),
    smooths: "flag",
    sums: writes.f32(
      "rows * (smooths ? 3 : 2)",
      "[2 or 3, rows]: the sum of e^(logit - maximum), and logit - maximum of the target, or -0 if it has no column.",
    ),
  },
  lossOfSums: {
    rows: "count",
    smoothing: "float",
    sums: reads.f32("rows * (smoothing != 0 ? 3 : 2)", "The sums of all classes."),
    targets: reads.i32("rows"),
    loss: writes.f32("rows"),
    classes: "count",
    ignore: "int",
  },
} as const satisfies Declarations;

export const lossSums: Lowering<"lossSums"> = {
  run({ addon, device }, { logits, targets, first, maximum, sums }) {
    const [rows, columns] = asMatrix(logits.shape);
    const smooths = sums.shape[0] === 3;
    addon.lossSums(device, { rows, columns, logits, targets, first, maximum, smooths, sums });
  },
};

export const lossOfSums: Lowering<"lossOfSums"> = {
  run({ addon, device }, { sums, targets, classes, smoothing, ignore, loss }) {
    addon.lossOfSums(device, { rows: loss.size, smoothing, sums, targets, loss, classes, ignore });
  },
};
