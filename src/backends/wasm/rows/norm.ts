/** Norms and column sums on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, operand } from "../lowering.js";

const NULL = 0;

export const norm: Lowering<"norm"> = {
  run({ pool }, { x, gamma, beta, eps, zeroCenteredGamma, out, mean, rstd }) {
    const [rows, columns] = asMatrix(x.shape);
    const [gammaAddress, parameterType] = operand(gamma);
    const parameters = [gammaAddress, beta?.address ?? NULL, parameterType];
    const saved = [mean?.address ?? NULL, rstd.address];
    const head = [
      ...operand(x),
      ...parameters,
      ...operand(out),
      ...saved,
      columns,
      eps,
      Number(zeroCenteredGamma),
    ];
    pool.run("norm", { total: rows, weight: columns * 4 }, (scratch) => [...head, scratch]);
  },
};

export const normBackward: Lowering<"normBackward"> = {
  run({ pool }, { grad, x, gamma, zeroCenteredGamma, mean, rstd, dx, dgamma, dbeta }) {
    const [rows, columns] = asMatrix(x.shape);
    const [gammaAddress, gammaType] = operand(gamma);
    const saved = [mean?.address ?? NULL, rstd.address];
    const given = [...operand(grad), ...operand(x)];
    const inputs = [
      ...given,
      gammaAddress,
      gammaType,
      ...saved,
      ...operand(dx),
      columns,
      Number(zeroCenteredGamma),
    ];
    pool.run("normBackward", { total: rows, weight: columns * 6 }, (scratch) => [...inputs, scratch]);
    const [dgammaAddress, parameterType] = operand(dgamma);
    const outputs = [dgammaAddress, dbeta?.address ?? NULL, parameterType];
    const sums = [...given, ...saved, ...outputs, rows, columns];
    pool.run("normParameters", { total: columns, grain: 32, weight: rows * 4 }, (scratch) => [
      ...sums,
      scratch,
    ]);
  },
};

export const columnSum: Lowering<"columnSum"> = {
  run({ pool }, { x, out }) {
    const [rows, columns] = asMatrix(x.shape);
    const head = [...operand(x), ...operand(out), rows, columns];
    pool.run("columnSum", { total: columns, grain: 32, weight: rows }, (scratch) => [...head, scratch]);
  },
};
