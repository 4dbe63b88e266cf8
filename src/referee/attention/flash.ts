/**
 * The model of `_scaled_dot_product_flash_attention` of PyTorch 2.11: FlashAttention-2 (aten/src/ATen/native/transformers/cuda/
 * flash_attn), whose kernels for sm_80 run on Hopper. ⊗ and ⊖ are f32 operations, each rounded once.
 */
import { asBytes } from "../../tensor/data.js";
import { treeSum } from "../block-sums.js";
import type { Call, Model } from "../call.js";
import { applyMath, fma, LN2 } from "../float32.js";
import { NotModelled } from "../not-modelled.js";
import { MULTIPROCESSORS } from "../reductions/launch.js";
import { zeroValue } from "../value.js";
import { addBlocks, type RowRules, scaleRows } from "./blocks.js";
import {
  type Attention,
  computeHeads,
  type Head,
  type HeadResults,
  hasComparedHeads,
  readAttention,
} from "./heads.js";
import { LANES, laneSum } from "./lanes.js";
import { TensorCore } from "./tensor-core.js";

const { fround } = Math;

/**
 * The head widths for which kernels were compiled, and the block sizes that follow from the width. A head is computed with the
 * next larger width.
 */
const KERNELS = [
  { width: 64, blockKeys: 128, splitBlockKeys: 256 },
  { width: 128, blockKeys: 64, splitBlockKeys: 128 },
  { width: 256, blockKeys: 64, splitBlockKeys: 64 },
] as const;

/** The number of queries of a block in a kernel that divides the keys. */
const SPLIT_BLOCK_QUERIES = 64;
const MAX_SPLITS = 128;
const MAX_COMPARED_SPLITS = 4;

/** The plan of a call: the number of keys in a block, and the number of splits of the blocks. */
interface Plan {
  readonly blockKeys: number;
  readonly splits: number;
}

/**
 * The number of splits (`num_splits_heuristic` of flash_api.cpp). Each multiprocessor has two slots for blocks. The result is the
 * smallest number of splits that keeps at least 85 % as many slots busy as the best number. Numbers that divide the blocks of
 * keys in the same way as the next smaller number are left out.
 */
function chooseSplits(blocks: number, keyBlocks: number): number {
  const slots = 2 * MULTIPROCESSORS;
  if (blocks >= fround(fround(0.8) * slots)) return 1;
  const perSplit = (splits: number): number => Math.ceil(keyBlocks / splits);
  const efficiencies: { readonly splits: number; readonly efficiency: number }[] = [];
  for (let splits = 1; splits <= Math.min(MAX_SPLITS, slots, keyBlocks); splits++) {
    if (splits > 1 && perSplit(splits) === perSplit(splits - 1)) continue;
    const waves = fround((blocks * splits) / slots);
    efficiencies.push({ splits, efficiency: fround(waves / Math.ceil(waves)) });
  }
  const best = Math.max(...efficiencies.map(({ efficiency }) => efficiency));
  return efficiencies.find(({ efficiency }) => efficiency >= 0.85 * best)?.splits ?? 1;
}

/** A single query of grouped heads is computed as the queries of one head. */
function launchPlan({ batch, heads, keyHeads, queries, keys, width }: Attention): Plan {
  const kernel = KERNELS.find((candidate) => width <= candidate.width);
  if (!kernel) throw new NotModelled(`heads of ${width} elements`);
  const rows = queries === 1 ? heads / keyHeads : queries;
  const rowHeads = queries === 1 ? keyHeads : heads;
  const blocks = batch * rowHeads * Math.ceil(rows / SPLIT_BLOCK_QUERIES);
  const splits = chooseSplits(blocks, Math.ceil(keys / kernel.splitBlockKeys));
  return { splits, blockKeys: splits > 1 ? kernel.splitBlockKeys : kernel.blockKeys };
}

/** The number of keys that a row sees. The last row of a causal attention sees all keys. */
function visibleKeys({ queries, keys, isCausal }: Attention): (row: number) => number {
  return isCausal && queries > 1 ? (row) => Math.min(keys, row + 1 + keys - queries) : () => keys;
}

/**
 * The rules of a row. With c = scale · log2 e, rounded to f32, p = exp2f((score ⊗ c) ⊖ (m' ⊗ c)). No operation is fused, because
 * PyTorch compiles the kernels with UNFUSE_FMA. f = exp2f((m ⊖ m') ⊗ c). Lane l of four adds the elements 8 i + 2 l and 8 i + 2 l
 * + 1 of a block for ascending i. It adds the first of the two by fma(sum, f, p).
 */
function rowRules(scale: number): RowRules {
  const c = fround(scale * Math.LOG2E);
  return {
    scale: (score) => score,
    exponent: (score, maximum) => fround(score * c) - fround(maximum * c),
    change: (previous, maximum) => fround(previous - maximum) * c,
    exponential: "exp2f",
    lanes: LANES,
    addRow(sums, factor, probabilities) {
      for (let lane = 0; lane < LANES; lane++) {
        let sum = fma(sums[lane] as number, factor, probabilities[2 * lane] as number);
        sum = fround(sum + (probabilities[2 * lane + 1] as number));
        sums[lane] = laneSum(sum, lane, probabilities, 2 * LANES);
      }
    },
  };
}

/**
 * Computes blocks `first` to `end` - 1 of a head, the last block first. With sum = (l0 ⊕ l2) ⊕ (l1 ⊕ l3) of the lanes, an output
 * is multiplied by 1 ⊘ sum, and the logarithm is fma(m, scale, lg2.approx(sum) ⊗ ln 2). A row without visible keys has zeros as
 * outputs and the logarithm `emptyRowLog`.
 */
function computeBlocks(
  attention: Attention,
  head: Head,
  { first, end, emptyRowLog }: { first: number; end: number; emptyRowLog: number },
): HeadResults {
  const { backend, queries, width } = attention;
  const scale = fround(attention.scale);
  const order = Array.from({ length: Math.max(end - first, 0) }, (_, i) => end - 1 - i);
  const blocks = { order, visible: visibleKeys(attention) };
  const rows = addBlocks(attention, head, rowRules(scale), blocks);
  const sums = Float32Array.from({ length: queries }, (_, row) => treeSum(rows.sums, row * LANES, LANES));
  const logs = applyMath(backend, "log2f.fast", sums);
  return {
    outputs: scaleRows(
      rows.outputs,
      width,
      sums.map((sum) => 1 / (sum || 1)),
    ),
    logSums: sums.map((sum, row) =>
      sum === 0 ? emptyRowLog : fma(rows.maxima[row] as number, scale, fround((logs[row] as number) * LN2)),
    ),
  };
}

/** The number of rows of a block of the kernel that combines splits. */
function rowsPerBlock(width: number): number {
  const kernelWidth = [32, 64, 96, 128, 192, 256].find((candidate) => width <= candidate) ?? 256;
  if (kernelWidth % 128 === 0) return 4;
  return kernelWidth % 64 === 0 ? 8 : 16;
}

/**
 * The sum of the splits' terms of a row. The 128 threads of a block have 4 to 16 rows, so T = 128 / rows threads share a row:
 * thread t adds terms t, t + T, …, then `treeSum`. With fewer than T splits, T is the next power of two.
 */
function sumSplits(terms: Float32Array, width: number): number {
  const slots = 2 ** Math.ceil(Math.log2(terms.length));
  const threads = Math.min(128 / rowsPerBlock(width), slots);
  const sums = new Float32Array(threads);
  for (const [i, term] of terms.entries()) sums[i % threads] = (sums[i % threads] as number) + term;
  return treeSum(sums, 0, threads);
}

/**
 * Combines the splits of a head. With L the logarithms of the splits' sums and M their maximum, the logarithm of a row is
 * logf(sum of expf(L ⊖ M)) ⊕ M, and its outputs are the sum of expf(L ⊖ logarithm) times the splits' outputs, by fma in the order
 * of the splits.
 */
function combineSplits(
  { backend, queries, width }: Attention,
  splitResults: readonly HeadResults[],
): HeadResults {
  const maxima = Float32Array.from({ length: queries }, (_, row) => {
    const maximum = Math.max(...splitResults.map(({ logSums }) => logSums[row] as number));
    return maximum === Number.NEGATIVE_INFINITY ? 0 : maximum;
  });
  const exponentialsRelativeTo = (base: Float32Array): readonly Float32Array[] =>
    splitResults.map(({ logSums }) =>
      applyMath(
        backend,
        "expf",
        logSums.map((logSum, row) => logSum - (base[row] as number)),
      ),
    );
  const terms = exponentialsRelativeTo(maxima);
  const sums = maxima.map((_, row) =>
    sumSplits(
      Float32Array.from(terms, (splitTerms) => splitTerms[row] as number),
      width,
    ),
  );
  const logs = applyMath(backend, "logf", sums);
  const logSums = sums.map((sum, row) =>
    sum === 0 ? Number.POSITIVE_INFINITY : (logs[row] as number) + (maxima[row] as number),
  );
  const outputs = new Float32Array(queries * width);
  for (const [split, factors] of exponentialsRelativeTo(logSums).entries()) {
    const part = splitResults[split] as HeadResults;
    for (let i = 0; i < outputs.length; i++)
      outputs[i] = fma(
        factors[Math.floor(i / width)] as number,
        part.outputs[i] as number,
        outputs[i] as number,
      );
  }
  return { outputs, logSums };
}

function computeHead(attention: Attention, head: Head, splits: number): HeadResults {
  const blocks = Math.ceil(attention.keys / head.blockKeys);
  if (splits === 1)
    return computeBlocks(attention, head, { first: 0, end: blocks, emptyRowLog: Number.POSITIVE_INFINITY });
  const perSplit = Math.ceil(blocks / splits);
  const splitResults = Array.from({ length: splits }, (_, split) => {
    const first = split * perSplit;
    const end = Math.min(first + perSplit, blocks);
    return computeBlocks(attention, head, { first, end, emptyRowLog: Number.NEGATIVE_INFINITY });
  });
  return combineSplits(attention, splitResults);
}

/** The output and the logarithms of the sums. `rng_state` and `unused` are not written without dropout; no mask is returned. */
export const flashAttention: Model = (call) => {
  call.requireDefault("return_debug_mask", false);
  const attention = readAttention(call);
  const { batch, heads, queries, dtype } = attention;
  const { splits, blockKeys } = launchPlan(attention);
  const tiling = { core: new TensorCore(16), blockKeys };
  const { out, logSums } = computeHeads(call, attention, tiling, queries, (head) =>
    computeHead(attention, head, splits),
  );
  return [
    out,
    { dtype: "F32", shape: [batch, heads, queries], bytes: asBytes(logSums) },
    zeroValue("U64", [2]),
    zeroValue("U64", []),
    zeroValue(dtype, [0]),
  ];
};

/** Whether a call has heads of compared widths, and at most the compared number of splits. */
export function isComparedFlash(call: Call): boolean {
  const attention = readAttention(call);
  return hasComparedHeads(attention) && launchPlan(attention).splits <= MAX_COMPARED_SPLITS;
}
