/**
 * The model of `_scaled_dot_product_efficient_attention` of PyTorch 2.11 (aten/src/ATen/native/transformers/cuda/
 * mem_eff_attention), whose CUTLASS kernels for sm_80 run on Hopper. ⊗, ⊖ and ⊕ are f32 operations, each rounded once.
 */
import { asBytes } from "../../tensor/data.js";
import type { Model } from "../call.js";
import { applyMath, LOG2E } from "../float32.js";
import { zeroValue } from "../value.js";
import { addBlocks, ascendingBlocks, keysUpToRow, type RowRules, scaleRows } from "./blocks.js";
import {
  type Attention,
  computeHeads,
  type Head,
  type HeadResults,
  readAttention,
  requirePlainHeads,
} from "./heads.js";
import { LANES, laneSum, neighbourSum } from "./lanes.js";
import { TensorCore } from "./tensor-core.js";

const { fround } = Math;

/** The logarithms of the sums of a head are padded with infinities to a multiple of this many rows. */
const ALIGNED_ROWS = 32;
/** The number of columns of a block that one warp adds. */
const WARP_COLUMNS = 32;

/**
 * The rules of a row: z = (score ⊗ scale) ⊗ log2 e, p = exp2f(z ⊖ m'), f = exp2f(m ⊖ m'). The sum of a row is multiplied by f.
 * Then the sum of each 32 columns, the `neighbourSum` of the lanes' sums, is added to it.
 */
function rowRules(scale: number): RowRules {
  const distance = (x: number, maximum: number): number => x - maximum;
  const lanes = new Float32Array(LANES);
  return {
    scale: (score) => fround(score * scale) * LOG2E,
    exponent: distance,
    change: distance,
    exponential: "exp2f",
    lanes: 1,
    addRow(sums, factor, probabilities) {
      let total = fround((sums[0] as number) * factor);
      for (let warp = 0; warp < probabilities.length; warp += WARP_COLUMNS) {
        const columns = probabilities.subarray(warp, warp + WARP_COLUMNS);
        for (let lane = 0; lane < LANES; lane++) lanes[lane] = laneSum(0, lane, columns, 0);
        total = fround(total + neighbourSum(lanes, 0));
      }
      sums[0] = total;
    },
  };
}

/** One head: an output is multiplied by 1 ⊘ sum, and the logarithm is (m ⊘ log2 e) ⊕ logf(sum). */
function computeHead(attention: Attention, head: Head): HeadResults {
  const { backend, width } = attention;
  const { maxima, sums, outputs } = addBlocks(attention, head, rowRules(fround(attention.scale)), {
    order: ascendingBlocks(attention, head.blockKeys),
    visible: keysUpToRow(attention),
  });
  return {
    outputs: scaleRows(
      outputs,
      width,
      sums.map((sum) => 1 / sum),
    ),
    logSums: applyMath(backend, "logf", sums).map(
      (log, row) => fround((maxima[row] as number) / LOG2E) + log,
    ),
  };
}

/** The output, the logarithms of the sums, and the seed and offset of dropout, which are not written without dropout. */
export const efficientAttention: Model = (call) => {
  call.requireDefault("attn_bias", null);
  const attention = readAttention(call);
  requirePlainHeads(attention);
  const { batch, heads, queries, width } = attention;
  const returnsLogs = call.boolean("compute_log_sumexp", true);
  const rows = returnsLogs ? Math.ceil(queries / ALIGNED_ROWS) * ALIGNED_ROWS : 0;
  const tiling = { core: new TensorCore(8), blockKeys: width <= 64 ? 64 : 128 };
  const { out, logSums } = computeHeads(call, attention, tiling, rows, (head) =>
    computeHead(attention, head),
  );
  return [
    out,
    { dtype: "F32", shape: [batch, heads, rows], bytes: asBytes(logSums) },
    zeroValue("I64", []),
    zeroValue("I64", []),
  ];
};
