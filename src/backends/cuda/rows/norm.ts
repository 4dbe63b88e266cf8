/** Norms, their gradients, and column sums on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { NormArgs } from "../../ops.js";
import { addressOf, type Lowering, wideOf } from "../lowering.js";
import { type Declarations, reads, scratch, writes } from "../native-arguments.js";
import { NORM_SOURCE, OUT, SIZE, SOURCE } from "../shared-arguments.js";

export const NORM_CALLS = {
  norm: { ...NORM_SOURCE, ...OUT, "amax?": "pointer" },
  normBackward: {
    ...SIZE,
    grad: reads.wide("rows * columns", "The gradient of the norm's result."),
    x: reads.wide("rows * columns"),
    gamma: reads.wide("columns"),
    "mean?": reads.f32("rows", "Null for RMSNorm."),
    rstd: reads.f32("rows"),
    dx: writes.wide("rows * columns"),
    dgamma: writes.wide("columns"),
    "dbeta?": writes.wide("columns", undefined, "dgamma"),
    zeroCentered: "flag",
    workspace: scratch.f32("chunksOf(rows) * columns * (dbeta ? 2 : 1)", "Column sums of chunks of rows."),
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
        rows,
        columns,
        grad,
        x,
        gamma,
        mean,
        rstd,
        dx,
        dgamma,
        dbeta,
        zeroCentered: zeroCenteredGamma,
        workspace,
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
