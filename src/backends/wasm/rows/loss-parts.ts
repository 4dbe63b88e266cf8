/** The steps of a cross-entropy whose columns are divided among ranks, on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, wideOf } from "../lowering.js";

export const lossSums: Lowering<"lossSums"> = {
  run({ pool }, { logits, targets, first, maximum, sums }) {
    const [total, columns] = asMatrix(logits.shape);
    const source = { logits: logits.address, logitsType: wideOf(logits), rows: total, columns, first };
    const rows = { targets: targets.address, maximum: maximum.address, sums: sums.address };
    const smooths = sums.shape[0] === 3;
    pool.run("lossSums", { total, weight: columns * 8 }, { smooths, ...source, ...rows });
  },
};

export const lossOfSums: Lowering<"lossOfSums"> = {
  run({ pool }, { sums, targets, classes, smoothing, ignore, loss }) {
    const total = loss.size;
    const rows = { sums: sums.address, targets: targets.address, loss: loss.address, rows: total };
    pool.run("lossOfSums", { total }, { classes, smoothing, ignore, ...rows });
  },
};
