/** Attention and its gradient on the reference. */
import { GEMM_TASK, KERNEL, STAGING } from "../../../formats/contract.gen.js";
import { DATAPATHS, type DatapathRow } from "../../../formats/datapath.js";
import { wordOf } from "../../../formats/derive.js";
import { storageBits } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import { attentionDatapath } from "../../attention-datapath.js";
import type { AttentionArgs, AttentionBackwardArgs, AttentionRule } from "../../ops/attention.js";
import { attentionSizes, dropoutOf } from "../../ops/attention-sizes.js";
import type { ExportArgs } from "../call.js";
import { NO_SCALES } from "../gemm/gemm.js";
import { drawsOf, type Lowering, type LoweringContext, wideOf } from "../lowering.js";

const NULL = 0;
/** The statistics of a row without visible keys. */
const EMPTY = Number.NEGATIVE_INFINITY;

export const attention: Lowering<"attention"> = {
  supports: attentionDatapath,
  run(context, args) {
    forward(context, args);
  },
};

export const attentionBackward: Lowering<"attentionBackward"> = {
  supports: attentionDatapath,
  run(context, args) {
    backward(context, args);
  },
};

/** Stand-ins for the tensors and addresses of the backward pass in the task of a forward pass. */
const NO_TENSOR = { data: NULL, batchStride: 0, rowStride: 0, headStride: 0 } as const;
const NO_TENSORS = { grad: NO_TENSOR, dq: NO_TENSOR, dk: NO_TENSOR, dv: NO_TENSOR } as const;
const NO_GRADS = {
  deltas: NULL,
  biasGrads: NULL,
  dbias: NULL,
  dbiasType: 0,
  dbiasBatches: 0,
  dbiasHeads: 0,
  dsinks: NULL,
} as const;

function forward(context: LoweringContext, args: AttentionArgs): void {
  const { pool } = context;
  const { out, lse, maxLogits, q, v } = args;
  const sizes = attentionSizes(args);
  const task = {
    out: tensorOf(out, args),
    ...NO_TENSORS,
    ...NO_GRADS,
    ...ruleOf(args),
    lse: lse.address,
    maxLogits: maxLogits?.address ?? NULL,
  };
  pool.run("attentionFill", { total: lse.size }, { to: lse.address, value: EMPTY });
  const compute = (maxima: number): void => {
    const weight = 64 * Math.min(sizes.keys, 2 ** 20) * (q.shape.at(-1) as number);
    const unitWeight = weight + (v.shape.at(-1) as number);
    runUnits(context, "attention", "attentionUnits", { maxima, ...task }, unitWeight);
  };
  if (!maxLogits) {
    compute(NULL);
    return;
  }
  context.withTemporary(4 * lse.size, (maxima) => {
    pool.run("attentionFill", { total: lse.size }, { to: maxima, value: EMPTY });
    compute(maxima);
    pool.run("attentionMaxima", { total: sizes.heads, weight: lse.size }, { maxima, ...task });
  });
}

function backward(context: LoweringContext, args: AttentionBackwardArgs): void {
  const { pool } = context;
  const { lse, dbias, dsinks } = args;
  const sizes = attentionSizes(args);
  const [dbiasBatches = 0, dbiasHeads = 0] = dbias?.shape ?? [];
  context.withTemporary(4 * lse.size, (deltas) => {
    // no delta is computed for rows beyond the length of a sequence, and the caller's lse need not be -infinity there
    pool.run("attentionFill", { total: lse.size }, { to: deltas, value: 0 });
    const fields = {
      out: tensorOf(args.result, args),
      grad: tensorOf(args.grad, args),
      dq: tensorOf(args.dq, args),
      dk: tensorOf(args.dk, args),
      dv: tensorOf(args.dv, args),
      ...ruleOf(args),
      lse: lse.address,
      maxima: NULL,
      maxLogits: NULL,
      deltas,
      dbias: dbias?.address ?? NULL,
      dbiasType: dbias ? wideOf(dbias) : 0,
      dbiasBatches,
      dbiasHeads,
      dsinks: dsinks?.address ?? NULL,
    };
    runUnits(context, "attentionDeltas", "attentionQueryUnits", { biasGrads: NULL, ...fields }, 64);
    withScoreGrads(context, args, (biasGrads) => {
      const task = { biasGrads, ...fields };
      const weight = 128 * Math.min(sizes.keys, 2 ** 20) * (args.q.shape.at(-1) as number);
      runUnits(context, "attentionQueryGrads", "attentionQueryUnits", task, weight);
      runUnits(context, "attentionKeyGrads", "attentionKeyUnits", task, weight);
      if (dbias) {
        const job = { total: dbiasBatches * dbiasHeads * sizes.queries, weight: sizes.keys };
        pool.run("attentionBiasGrads", job, task);
      }
    });
    if (dsinks) {
      const job = { total: sizes.heads, weight: lse.size };
      pool.run("attentionSinkGrads", job, { biasGrads: NULL, ...fields });
    }
  });
}

/**
 * Calls `body` with the address of memory for the gradients of all scores if the gradient of the bias is requested, else null.
 */
function withScoreGrads(
  context: LoweringContext,
  args: AttentionBackwardArgs,
  body: (biasGrads: number) => void,
): void {
  const { batch, heads, queries, keys } = attentionSizes(args);
  const count = batch * heads * queries * keys;
  if (!args.dbias || count === 0) {
    body(NULL);
    return;
  }
  context.withTemporary(4 * count, (grads) => {
    context.pool.run("attentionFill", { total: count }, { to: grads, value: 0 });
    body(grads);
  });
}

function runUnits(
  { pool }: LoweringContext,
  name: "attention" | "attentionDeltas" | "attentionQueryGrads" | "attentionKeyGrads",
  units: "attentionUnits" | "attentionQueryUnits" | "attentionKeyUnits",
  task: ExportArgs<"attention">,
  weight: number,
): void {
  const total = pool.call(units, task);
  pool.run(name, { total, weight, scratch: pool.call("attentionScratch", task) }, task);
}

/** Returns the fields of a task that both passes share. */
function ruleOf(args: AttentionRule) {
  const { batch, heads, keyHeads, queries, keys, statisticBatches } = attentionSizes(args);
  const [width, valueWidth] = [args.q.shape.at(-1) as number, args.v.shape.at(-1) as number];
  const { blockKeys, splitKeys } = args.plan;
  return {
    q: tensorOf(args.q, args),
    k: tensorOf(args.k, args, args.pages !== undefined),
    v: tensorOf(args.v, args, args.pages !== undefined),
    ...datapathOf(args),
    batch,
    heads,
    keyHeads,
    queries,
    keys,
    width,
    valueWidth,
    type: wideOf(args.q),
    blockKeys,
    splitKeys,
    scale: args.scale,
    ...keysOf(args),
    ...scoresOf(args),
    lseBatch: args.layout === "thd" ? 0 : heads * queries,
    lseHead: queries,
    statisticBatches,
  };
}

/** Returns the datapath and the operand type of all products, as for a matrix product. */
function datapathOf(args: AttentionRule) {
  const choice = attentionDatapath(args);
  const row: DatapathRow | undefined = choice.ok ? DATAPATHS[choice.name] : undefined;
  const dotAdd = row?.dotAdd;
  const operand = {
    data: NULL,
    width: storageBits(args.q.dtype),
    word: wordOf(args.q.dtype),
    staging: STAGING.plain,
    ...NO_SCALES,
  };
  return {
    x: operand,
    w: operand,
    rows: 0,
    columns: 0,
    depth: 0,
    kernel: dotAdd ? KERNEL.wide : KERNEL.plain,
    step: dotAdd?.step ?? 0,
    alignBits: dotAdd?.alignBits ?? 0,
    fractionBits: dotAdd?.fractionBits ?? 0,
    zeroOperand: GEMM_TASK.noExponent,
    zeroAccumulator: dotAdd?.zeroAccumulator ?? 0,
    group: 1,
  };
}

/** Returns the address and the strides of a tensor. With `isPaged`, it is stored in pages. */
function tensorOf(tensor: Tensor, { layout }: AttentionRule, isPaged = false) {
  const [heads, width] = tensor.shape.slice(-2) as [number, number];
  const line = heads * width;
  const [first = 0, second = 0] = tensor.shape;
  const fields = { data: tensor.address, headStride: width };
  if (layout === "sbhd" && !isPaged) return { ...fields, batchStride: line, rowStride: second * line };
  if (layout === "thd" && !isPaged) return { ...fields, batchStride: 0, rowStride: line };
  return { ...fields, batchStride: first && second * line, rowStride: line };
}

/** Returns the lengths of sequences and which keys are visible. */
function keysOf(args: AttentionRule) {
  const { queryLengths, queryStarts, keyLengths, keyStarts, pages, mask, k } = args;
  const [pageCount = 0, pageLength = 0] = pages ? k.shape : [];
  const { batchStride, headStride } = strideOf(mask);
  const { left, right, alignsEnd } = args;
  return {
    queryLengths: queryLengths?.address ?? NULL,
    queryStarts: queryStarts?.address ?? NULL,
    keyLengths: keyLengths?.address ?? NULL,
    keyStarts: keyStarts?.address ?? NULL,
    cumulative: args.layout === "thd",
    pages: pages?.address ?? NULL,
    pageLength,
    pageCount,
    pagesOfSequence: pages?.shape[1] ?? 0,
    alignsEnd,
    left,
    right,
    mask: mask?.address ?? NULL,
    maskBatch: batchStride,
    maskHead: headStride,
  };
}

/** The strides of the first two dimensions of [1 or B, 1 or H, Sq, Sk]: 0 for a dimension of size 1. */
function strideOf(tensor: Tensor | undefined): { batchStride: number; headStride: number } {
  const [batch = 1, heads = 1, rows = 0, columns = 0] = tensor?.shape ?? [];
  return { batchStride: batch > 1 ? heads * rows * columns : 0, headStride: heads > 1 ? rows * columns : 0 };
}

/** Returns the options that change scores and probabilities. */
function scoresOf(args: AttentionRule) {
  const { bias, slopes, sinks, softcap, dropout, biasBeforeScale } = args;
  const { batchStride, headStride } = strideOf(bias);
  const { threshold, keep } = dropoutOf(dropout);
  const { seedLo, seedHi, offsetLo } = drawsOf(dropout);
  return {
    bias: bias?.address ?? NULL,
    biasType: bias ? wideOf(bias) : 0,
    biasBatch: batchStride,
    biasHead: headStride,
    biasBeforeScale,
    slopes: slopes?.address ?? NULL,
    slopeBatch: slopes?.shape.length === 2 ? (slopes.shape[1] as number) : 0,
    softcap,
    inverseSoftcap: softcap && Math.fround(1 / softcap),
    sinks: sinks?.address ?? NULL,
    threshold,
    keep,
    seedLow: seedLo,
    seedHigh: seedHi,
    offset: offsetLo,
    allHeads: dropout?.allHeads ?? 0,
    firstHead: dropout?.firstHead ?? 0,
  };
}
