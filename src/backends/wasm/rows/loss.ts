/** Losses on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, operand } from "../lowering.js";

export const crossEntropy: Lowering<"crossEntropy"> = {
  run({ pool }, { logits, targets, loss, maximum, total, smoothing, ignore }) {
    const [rows, columns] = asMatrix(logits.shape);
    const outputs = [loss.address, maximum.address, total.address];
    const head = [...operand(logits), targets.address, ...outputs, columns, smoothing, ignore];
    pool.run("crossEntropy", { total: rows, weight: columns * 8 }, (scratch) => [...head, scratch]);
  },
};

export const crossEntropyBackward: Lowering<"crossEntropyBackward"> = {
  run({ pool }, { grad, logits, targets, maximum, total, dx, smoothing, ignore }) {
    const [rows, columns] = asMatrix(logits.shape);
    const saved = [targets.address, maximum.address, total.address];
    const head = [grad.address, ...operand(logits), ...saved, ...operand(dx), columns, smoothing, ignore];
    pool.run("crossEntropyBackward", { total: rows, weight: columns * 8 }, (scratch) => [...head, scratch]);
  },
};

export const mse: Lowering<"mse"> = {
  run({ pool }, { x, target, loss }) {
    const [rows, columns] = asMatrix(x.shape);
    const head = [...operand(x), ...operand(target), loss.address, columns];
    pool.run("mse", { total: rows, weight: columns }, (scratch) => [...head, scratch]);
  },
};

export const mseBackward: Lowering<"mseBackward"> = {
  run({ pool }, { grad, x, target, dx }) {
    const [rows, columns] = asMatrix(x.shape);
    const head = [grad.address, ...operand(x), ...operand(target), ...operand(dx), columns];
    pool.run("mseBackward", { total: rows, weight: columns }, (scratch) => [...head, scratch]);
  },
};
