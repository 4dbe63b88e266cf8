/** The steps of a cross-entropy whose columns ranks have parts of, on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { LossMaximumArgs } from "../../ops.js";
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

const LOGITS = { logits: "pointer", logitsType: "wide", ...SIZE } as const;

export const LOSS_PARTS_CALLS = {
  lossMaximum: { ...LOGITS, maximum: "pointer" },
  lossSums: {
    ...LOGITS,
    targets: "pointer",
    first: "count",
    maximum: "pointer",
    sums: "pointer",
    smooths: "flag",
  },
  lossOfSums: {
    sums: "pointer",
    targets: "pointer",
    loss: "pointer",
    rows: "count",
    classes: "count",
    smoothing: "float",
    ignore: "word",
  },
} as const satisfies Declarations;

function rowsOf({ logits }: Pick<LossMaximumArgs, "logits">) {
  const [rows, columns] = asMatrix(logits.shape);
  return { logits: logits.address, logitsType: wideOf(logits), rows, columns };
}

/** Whether `sums` has the row that label smoothing needs. */
function smooths(sums: Tensor): boolean {
  return sums.shape[0] === 3;
}

export const lossMaximum: Lowering<"lossMaximum"> = {
  run({ addon, device }, args) {
    addon.lossMaximum(device, { maximum: args.maximum.address, ...rowsOf(args) });
  },
};

export const lossSums: Lowering<"lossSums"> = {
  run({ addon, device }, args) {
    const { targets, first, maximum, sums } = args;
    addon.lossSums(device, {
      targets: targets.address,
      first,
      maximum: maximum.address,
      sums: sums.address,
      smooths: smooths(sums),
      ...rowsOf(args),
    });
  },
};

export const lossOfSums: Lowering<"lossOfSums"> = {
  run({ addon, device }, { sums, targets, classes, smoothing, ignore, loss }) {
    addon.lossOfSums(device, {
      sums: sums.address,
      targets: targets.address,
      loss: loss.address,
      rows: loss.size,
      classes,
      smoothing,
      // the i32 as a 32-bit pattern
      ignore: ignore >>> 0,
    });
  },
};
