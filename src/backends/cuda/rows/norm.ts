/** Norms, their gradients, and column sums on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { NormArgs } from "../../ops.js";
import { addressOf, type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { DX, GRAD, NORM_SOURCE, OUT, SOURCE } from "../shared-arguments.js";

export const NORM_CALLS = {
  norm: { ...NORM_SOURCE, ...OUT, "amax?": "pointer" },
  normBackward: {
    ...GRAD,
    ...SOURCE,
    gamma: "pointer",
    parameterType: "wide",
    "mean?": "pointer",
    rstd: "pointer",
    ...DX,
    dgamma: "pointer",
    "dbeta?": "pointer",
    gradientType: "wide",
    workspace: "pointer",
    zeroCentered: "flag",
  },
  columnSum: { ...SOURCE, ...OUT, workspace: "pointer" },
} as const satisfies Declarations;

/** Returns the size in bytes of the workspace for column sums: one f32 per 32 rows and column, for each of `results` sums. */
export function chunkSumBytes(rows: number, columns: number, results: number): number {
  return Math.ceil(rows / 32) * columns * results * 4;
}

/** Returns the arguments of a norm's kernel, except its output. */
export function normSource(args: Omit<NormArgs, "out">) {
  const { x, gamma, beta, eps, zeroCenteredGamma, mean, rstd } = args;
  const [rows, columns] = asMatrix(x.shape);
  return {
    x: x.address,
    xType: wideOf(x),
    gamma: gamma.address,
    beta: addressOf(beta),
    parameterType: wideOf(gamma),
    mean: addressOf(mean),
    rstd: rstd.address,
    rows,
    columns,
    epsilon: eps,
    zeroCentered: zeroCenteredGamma,
  };
}

export const norm: Lowering<"norm"> = {
  run({ addon, device }, { out, ...source }) {
    addon.norm(device, { out: out.address, outType: wideOf(out), ...normSource(source) });
  },
};

export const normBackward: Lowering<"normBackward"> = {
  run(
    { addon, device, withTemporary },
    { grad, x, gamma, zeroCenteredGamma, mean, rstd, dx, dgamma, dbeta },
  ) {
    const [rows, columns] = asMatrix(x.shape);
    withTemporary(chunkSumBytes(rows, columns, dbeta ? 2 : 1), (workspace) =>
      addon.normBackward(device, {
        grad: grad.address,
        gradType: wideOf(grad),
        x: x.address,
        xType: wideOf(x),
        gamma: gamma.address,
        parameterType: wideOf(gamma),
        mean: addressOf(mean),
        rstd: rstd.address,
        dx: dx.address,
        dxType: wideOf(dx),
        dgamma: dgamma.address,
        dbeta: addressOf(dbeta),
        gradientType: wideOf(dgamma),
        workspace,
        rows,
        columns,
        zeroCentered: zeroCenteredGamma,
      }),
    );
  },
};

export const columnSum: Lowering<"columnSum"> = {
  run({ addon, device, withTemporary }, { x, out }) {
    const [rows, columns] = asMatrix(x.shape);
    withTemporary(chunkSumBytes(rows, columns, 1), (workspace) =>
      addon.columnSum(device, {
        x: x.address,
        xType: wideOf(x),
        out: out.address,
        outType: wideOf(out),
        rows,
        columns,
        workspace,
      }),
    );
  },
};
