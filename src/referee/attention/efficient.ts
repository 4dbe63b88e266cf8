/**
 * The model of `_scaled_dot_product_efficient_attention` of PyTorch 2.11 (aten/src/ATen/native/transformers/cuda/
 * mem_eff_attention), whose CUTLASS kernels for sm_80 run on Hopper. ⊗, ⊖ and ⊕ are f32 operations, each rounded once.
 */
import { asBytes } from "../../tensor/data.js";
import type { Call, Model } from "../call.js";
import { roundedTo } from "../conversions.js";
import { LOG2E, mathOf } from "../float32.js";
import { NotModelled } from "../not-modelled.js";
import { zeroValue } from "../value.js";
import { type Attention, attentionOf, firstVisibleRow, type Head, headsOf } from "./heads.js";
import { TensorCore } from "./tensor-core.js";

const { fround } = Math;

/** The logarithms of the sums of a head are padded with infinities to a multiple of this many rows. */
const ALIGNED_ROWS = 32;
/** The widest heads whose outputs the kernel keeps in registers. */
const MAX_WIDTH = 128;
/** The number of columns of a block that one warp adds. */
const WARP_COLUMNS = 32;
const LANES = 4;

const blockKeysOf = ({ width }: Attention): number => (width <= 64 ? 64 : 128);

/** The number of keys that a row sees: the first row of a causal attention sees one key. */
const visibleKeys = ({ keys, isCausal }: Attention): ((row: number) => number) =>
  isCausal ? (row) => Math.min(keys, row + 1) : () => keys;

/**
 * Adds the probabilities of a row to its sum, warp by warp: lane l of four adds the elements 8 i + 2 l and 8 i + 2 l + 1 of 32
 * columns in order, and (l0 ⊕ l1) ⊕ (l2 ⊕ l3) is added to the sum.
 */
function rowSum(before: number, probabilities: Float32Array): number {
  let total = before;
  for (let warp = 0; warp < probabilities.length; warp += WARP_COLUMNS) {
    const lanes = Array.from({ length: LANES }, (_, lane) => {
      let sum = 0;
      for (let i = warp + 2 * lane; i < warp + WARP_COLUMNS; i += 2 * LANES)
        sum = fround(fround(sum + (probabilities[i] as number)) + (probabilities[i + 1] as number));
      return sum;
    }) as [number, number, number, number];
    total = fround(total + fround(fround(lanes[0] + lanes[1]) + fround(lanes[2] + lanes[3])));
  }
  return total;
}

/**
 * One head. Each block of keys, in order, updates the maximum m of a row, its sum and its outputs:
 *
 * - z = (score ⊗ scale) ⊗ log2 e; m' is the new maximum of z; f = exp2f(m ⊖ m');
 * - p = exp2f(z ⊖ m'); the sum ⊗ f, to which `rowSum` adds p;
 * - the outputs ⊗ f, to which the tensor core adds the products of p, rounded to the dtype.
 *
 * At the end an output is multiplied by 1 ⊘ sum, and the logarithm is (m ⊘ log2 e) ⊕ logf(sum).
 */
function computeHead(attention: Attention, head: Head): { outputs: Float32Array; logSums: Float32Array } {
  const { backend, queries, keys, width } = attention;
  const blockKeys = blockKeysOf(attention);
  const visible = visibleKeys(attention);
  const scale = fround(attention.scale);
  const maxima = new Float32Array(queries).fill(Number.NEGATIVE_INFINITY);
  const sums = new Float32Array(queries);
  const outputs = new Float32Array(queries * width);
  for (let block = 0; block * blockKeys < keys; block++) {
    const firstRow = firstVisibleRow(queries, block * blockKeys, visible);
    const scores = head.scores(block, firstRow, visible);
    const changes = new Float32Array(queries - firstRow);
    for (let row = firstRow; row < queries; row++) {
      const start = (row - firstRow) * blockKeys;
      const line = scores.subarray(start, start + blockKeys);
      for (let i = 0; i < blockKeys; i++) line[i] = fround((line[i] as number) * scale) * LOG2E;
      const before = maxima[row] as number;
      const maximum = line.reduce((a, b) => Math.max(a, b), before);
      maxima[row] = maximum;
      changes[row - firstRow] = before - maximum;
      for (let i = 0; i < blockKeys; i++) line[i] = (line[i] as number) - maximum;
    }
    const factors = mathOf(backend, "exp2f", changes);
    const probabilities = mathOf(backend, "exp2f", scores);
    for (let row = firstRow; row < queries; row++) {
      const start = (row - firstRow) * blockKeys;
      const scaled = fround((sums[row] as number) * (factors[row - firstRow] as number));
      sums[row] = rowSum(scaled, probabilities.subarray(start, start + blockKeys));
    }
    head.accumulate(outputs, { block, firstRow, probabilities, factors });
  }
  const logs = mathOf(backend, "logf", sums);
  return {
    outputs: outputs.map((each, i) => each * fround(1 / (sums[Math.floor(i / width)] as number))),
    logSums: logs.map((log, row) => fround((maxima[row] as number) / LOG2E) + log),
  };
}

/** The output, the logarithms of the sums, and the seed and offset of dropout, which are not written without dropout. */
export const efficientAttention: Model = (call: Call) => {
  call.requireDefault("attn_bias", null);
  const attention = attentionOf(call);
  const { backend, dtype, batch, heads, keyHeads, queries, width } = attention;
  if (width > MAX_WIDTH || heads !== keyHeads)
    throw new NotModelled(`heads of ${width} elements, ${heads} of queries and ${keyHeads} of keys`);
  const hasLogSums = call.boolean("compute_log_sumexp", true);
  const rows = hasLogSums ? Math.ceil(queries / ALIGNED_ROWS) * ALIGNED_ROWS : 0;
  const outputs = new Float32Array(batch * heads * queries * width);
  const logSums = new Float32Array(batch * heads * rows).fill(Number.POSITIVE_INFINITY);
  const tiling = { core: new TensorCore(8), blockKeys: blockKeysOf(attention) };
  for (const [index, head] of [...headsOf(call, attention, tiling)].entries()) {
    const part = computeHead(attention, head);
    outputs.set(part.outputs, index * queries * width);
    if (hasLogSums) logSums.set(part.logSums, index * rows);
  }
  return [
    roundedTo(backend, dtype, [batch, heads, queries, width], outputs),
    { dtype: "F32", shape: [batch, heads, rows], bytes: asBytes(logSums) },
    zeroValue("I64", []),
    zeroValue("I64", []),
  ];
};
