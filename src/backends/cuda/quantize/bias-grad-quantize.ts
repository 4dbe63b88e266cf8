/**
 * The fused column sums and quantization of a gradient on a GPU. The fused kernels support TransformerEngine's scale rule only.
 * Per-tensor FP8 with a given scale or amax, and block-scaled FP8, take one pass over the input; current scaling takes one pass
 * for the column sums and the amax, and another for the codes. In all other cases the two operations run one after the other.
 */
import { isLineWide, isTensorWide } from "../../../formats/block.js";
import type { ScaleRuleName } from "../../../formats/scale-rules.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { BiasGradQuantizeArgs } from "../../ops.js";
import { runBiasGradSteps } from "../../steps/bias-grad.js";
import type { Lowering, LoweringContext } from "../lowering.js";
import { type Declarations, group, scratch, writes } from "../native-arguments.js";
import { chunkSumBytes } from "../rows/norm.js";
import { BLOCK, blockSource } from "./block.js";
import { hasFusedFormat, TENSOR, tensorSource } from "./tensor.js";

const OUT = { out: writes.wide("quantization.columns", "The bias gradient, columnSum(x).") } as const;

/** The launchers return the same errors as the launchers of the quantizations. */
export const BIAS_GRAD_QUANTIZE_CALLS = {
  biasGradQuantizeBlock: {
    quantization: group("QuantizeBlockParams", BLOCK),
    ...OUT,
    workspace: scratch.f32(
      "chunksOf(quantization.rows) * quantization.columns",
      "The column sums of each 32 rows (kernels/rows/column-sum.h).",
    ),
  },
  biasGradQuantizeTensor: {
    quantization: group("QuantizeTensorParams", TENSOR),
    ...OUT,
    workspace: scratch.f32(
      "(chunksOf(quantization.rows) * quantization.columns + 1)",
      "The column sums of each 32 rows (kernels/rows/column-sum.h), then the amax of x.",
    ),
  },
} as const satisfies Declarations;

/** The scale rule that the kernels support. */
const KERNEL_RULE: ScaleRuleName = "f32";

export const biasGradQuantize: Lowering<"biasGradQuantize"> = {
  run(context, args) {
    const { addon, device } = context;
    const { spec, biasGrad } = args;
    if (spec.scaleRule !== KERNEL_RULE || !hasFusedFormat(spec) || isLineWide(spec.tile)) {
      runBiasGradSteps(args);
    } else if (isTensorWide(spec.tile)) {
      withSums(context, args, (workspace) =>
        addon.biasGradQuantizeTensor(device, { quantization: tensorSource(args), out: biasGrad, workspace }),
      );
    } else {
      withSums(context, args, (workspace) =>
        addon.biasGradQuantizeBlock(device, { quantization: blockSource(args), out: biasGrad, workspace }),
      );
    }
  },
};

/** Calls `body` with temporary memory for partial sums, one per column of each 32 rows, and for an amax. */
function withSums(
  { withTemporary }: LoweringContext,
  { x }: BiasGradQuantizeArgs,
  body: (workspace: number) => void,
): void {
  const [rows, columns] = asMatrix(x.shape);
  withTemporary(chunkSumBytes(rows, columns, 1) + 4, body);
}
