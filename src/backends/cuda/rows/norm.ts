/** Norms, their gradients, and column sums on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { NormArgs } from "../../ops.js";
import { type Lowering, type LoweringContext, wideOf } from "../lowering.js";
import { type Declarations, internal, reads, scratch, writes } from "../native-arguments.js";
import { SIZE } from "../shared-arguments.js";

const NORM_INPUT = {
  x: reads.wide("rows * columns"),
  gamma: reads.wide("columns", "One value per column.", "parameter"),
  "beta?": reads.wide("columns", "One value per column; may be null.", "parameter"),
  parameterType: "wide",
} as const;

const NORM_RULE = {
  "mean?": writes.f32("rows", "If it is null, the norm is RMSNorm."),
  rstd: writes.f32("rows"),
  ...SIZE,
  epsilon: "float",
  zeroCentered: "flag",
  tickets: internal(
    "uint32_t*",
    "A counter through which blocks share their work, or null. It is 0 before and after, and no other kernel uses it meanwhile.",
    "call.context().tickets()",
  ),
} as const;

/** The arguments of a norm, without its output. */
export const NORM_SOURCE = { ...NORM_INPUT, ...NORM_RULE } as const;

export const NORM_CALLS = {
  norm: {
    ...NORM_INPUT,
    out: writes.wide("rows * columns"),
    "amax?": writes.f32("1", "Set to the largest magnitude of the results as they are stored, NaN ignored."),
    ...NORM_RULE,
  },
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
  /**
   * out = columnSum(x) and weighted = columnSum(x * y), where y = rstd * (input - mean). Either result may be null. Without
   * `weighted`, `input` is not read.
   */
  columnSum: {
    x: reads.wide("rows * columns"),
    input: internal("const void*"),
    inputType: internal("Wide"),
    mean: internal("const float*", "One value per row; null means 0."),
    rstd: internal("const float*"),
    out: writes.wide("columns", undefined, "out"),
    weighted: internal("void*"),
    outType: "wide",
    amax: internal(
      "float*",
      "If not null, replaced by max |x| if that is larger; NaN is ignored. Not used if `weighted` is wanted.",
    ),
    ...SIZE,
    workspace: scratch.f32(
      "chunksOf(rows) * columns",
      "The column sums of each chunk of 32 rows: [chunks, columns] for each result that is not null.",
    ),
  },
} as const satisfies Declarations;

/** Returns the size in bytes of the workspace for column sums: one f32 per column of each 32 rows, for each of `results` sums. */
export function chunkSumBytes(rows: number, columns: number, results: number): number {
  return Math.ceil(rows / 32) * columns * results * 4;
}

/** Computes a norm, and if `amax` is given, the amax of its result. */
export function launchNorm({ addon, device }: LoweringContext, args: NormArgs, amax?: Tensor): void {
  const { x, gamma, beta, out, mean, rstd, eps, zeroCenteredGamma } = args;
  const [rows, columns] = asMatrix(x.shape);
  addon.norm(device, {
    x,
    gamma,
    beta,
    parameterType: wideOf(gamma),
    out,
    amax,
    mean,
    rstd,
    rows,
    columns,
    epsilon: eps,
    zeroCentered: zeroCenteredGamma,
  });
}

export const norm: Lowering<"norm"> = { run: (context, args) => launchNorm(context, args) };

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
        x,
        out,
        outType: wideOf(out),
        rows,
        columns,
        workspace,
      }),
    );
  },
};
