/**
 * The model of `_scaled_dot_product_cudnn_attention` of PyTorch 2.11, which runs kernels of cuDNN 9.19. Their source is not
 * public. Several orders and roundings were tried; the model has the order and the roundings that give all recorded outputs and
 * logarithms. ⊗, ⊖ and ⊕ are f32 operations, each rounded once.
 */
import { asBytes } from "../../tensor/data.js";
import type { Call, Model } from "../call.js";
import { applyMath, fma, LN2 } from "../float32.js";
import { type Value, zeroValue } from "../value.js";
import { addBlocks, ascendingBlocks, keysUpToRow, type RowRules, scaleRows } from "./blocks.js";
import {
  type Attention,
  computeHeads,
  type Head,
  type HeadResults,
  hasComparedHeads,
  readAttention,
  requirePlainHeads,
} from "./heads.js";
import { LANES, laneSum, neighbourSum } from "./lanes.js";
import { TensorCore } from "./tensor-core.js";

const { fround } = Math;

const BLOCK_KEYS = 128;
/**
 * The largest number of queries and of keys in a recorded call, and the largest number of keys in a recorded call with one query.
 */
const MAX_COMPARED_LENGTH = 1024;
const MAX_COMPARED_KEYS_OF_ONE_QUERY = 300;

/**
 * The rules of a row. With c = scale · log2 e, rounded to f32, z = score ⊗ c, p = ex2(z ⊖ m') and f = ex2(m ⊖ m'). Each lane adds
 * the probabilities of a block, starting at 0. The lane's sum then becomes fma(sum, f, sum of the block).
 */
function rowRules(scale: number): RowRules {
  const c = fround(scale * Math.LOG2E);
  const distance = (x: number, maximum: number): number => x - maximum;
  return {
    scale: (score) => fround(score * c),
    exponent: distance,
    change: distance,
    exponential: "ex2.approx.ftz.f32",
    lanes: LANES,
    addRow(sums, factor, probabilities) {
      for (let lane = 0; lane < LANES; lane++)
        sums[lane] = fma(sums[lane] as number, factor, laneSum(0, lane, probabilities, 0));
    },
  };
}

/**
 * One head. With the `neighbourSum` of the lanes, an output is multiplied by rcp.approx(sum), and the logarithm is
 * fma(m, ln 2, lg2.approx(sum) ⊗ ln 2).
 */
function computeHead(attention: Attention, head: Head): HeadResults {
  const { backend, queries, width } = attention;
  const rows = addBlocks(attention, head, rowRules(fround(attention.scale)), {
    order: ascendingBlocks(attention, BLOCK_KEYS),
    visible: keysUpToRow(attention),
  });
  const sums = Float32Array.from({ length: queries }, (_, row) => neighbourSum(rows.sums, row * LANES));
  return {
    outputs: scaleRows(rows.outputs, width, applyMath(backend, "rcp.approx.ftz.f32", sums)),
    logSums: applyMath(backend, "lg2.approx.ftz.f32", sums).map((log, row) =>
      fma(rows.maxima[row] as number, LN2, fround(log * LN2)),
    ),
  };
}

/**
 * The output, the logarithms of the sums if they are requested, and the seed and offset of dropout, which are not written without
 * dropout.
 */
export const cudnnAttention: Model = (call) => {
  call.requireDefault("attn_bias", null);
  call.requireDefault("return_debug_mask", false);
  const attention = readAttention(call);
  requirePlainHeads(attention);
  const { batch, heads, queries } = attention;
  const tiling = { core: new TensorCore(16), blockKeys: BLOCK_KEYS };
  const { out, logSums } = computeHeads(call, attention, tiling, queries, (head) =>
    computeHead(attention, head),
  );
  const logs: Value = { dtype: "F32", shape: [batch, heads, queries, 1], bytes: asBytes(logSums) };
  const returnsLogs = call.boolean("compute_log_sumexp", true);
  return [out, ...(returnsLogs ? [logs] : []), zeroValue("I64", []), zeroValue("I64", [])];
};

/**
 * Whether a call resembles the recorded calls. cuDNN chooses kernels by shape, and has another kernel for one query with many
 * keys.
 */
export function isComparedCudnn(call: Call): boolean {
  const attention = readAttention(call);
  const { queries, keys } = attention;
  return (
    hasComparedHeads(attention) &&
    call.boolean("compute_log_sumexp", true) &&
    queries <= MAX_COMPARED_LENGTH &&
    keys <= (queries === 1 ? MAX_COMPARED_KEYS_OF_ONE_QUERY : MAX_COMPARED_LENGTH)
  );
}
