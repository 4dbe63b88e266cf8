/** Norms, their gradients, and column sums on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, sourceOf, targetOf, wideOf } from "../lowering.js";

const NULL = 0;

export const norm: Lowering<"norm"> = {
  run({ pool }, { x, gamma, beta, eps, zeroCenteredGamma, out, mean, rstd }) {
    const [rows, columns] = asMatrix(x.shape);
    pool.run(
      "norm",
      { total: rows, weight: columns * 4 },
      {
        x: x.address,
        xType: wideOf(x),
        gamma: gamma.address,
        beta: beta?.address ?? NULL,
        parameterType: wideOf(gamma),
        out: out.address,
        outType: wideOf(out),
        mean: mean?.address ?? NULL,
        rstd: rstd.address,
        columns,
        epsilon: eps,
        zeroCentered: zeroCenteredGamma,
      },
    );
  },
};

export const normBackward: Lowering<"normBackward"> = {
  run({ pool }, { grad, x, gamma, zeroCenteredGamma, mean, rstd, dx, dgamma, dbeta }) {
    const [rows, columns] = asMatrix(x.shape);
    const fields = {
      grad: grad.address,
      gradType: wideOf(grad),
      x: x.address,
      xType: wideOf(x),
      mean: mean?.address ?? NULL,
      rstd: rstd.address,
      columns,
    };
    pool.run(
      "normBackward",
      { total: rows, weight: columns * 6 },
      {
        gamma: gamma.address,
        parameterType: wideOf(gamma),
        dx: dx.address,
        dxType: wideOf(dx),
        zeroCentered: zeroCenteredGamma,
        ...fields,
      },
    );
    const results = { dgamma: dgamma.address, dbeta: dbeta?.address ?? NULL, parameterType: wideOf(dgamma) };
    const job = { total: columns, grain: 32, weight: rows * 4 };
    pool.run("normParameters", job, { rows, ...fields, ...results });
  },
};

export const columnSum: Lowering<"columnSum"> = {
  run({ pool }, { x, out }) {
    const [rows, columns] = asMatrix(x.shape);
    const job = { total: columns, grain: 32, weight: rows };
    pool.run("columnSum", job, { rows, columns, ...sourceOf(x), ...targetOf(out) });
  },
};
