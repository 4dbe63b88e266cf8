/** Attention and its gradient on the reference. */
import { ATTENTION_TASK, GEMM_TASK, KERNEL, STAGING } from "../../../formats/contract.gen.js";
import { DATAPATHS, type DatapathRow } from "../../../formats/datapath.js";
import { wordOf } from "../../../formats/derive.js";
import { storageBits } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import { attentionDatapath } from "../../attention-datapath.js";
import type { AttentionArgs, AttentionBackwardArgs, AttentionRule } from "../../ops/attention.js";
import { attentionSizes, dropoutOf } from "../../ops/attention-sizes.js";
import { drawsOf, type Lowering, type LoweringContext, wideOf } from "../lowering.js";

const NULL = 0;
/** The statistics of a row without visible keys. */
const EMPTY = Number.NEGATIVE_INFINITY;

/** The numbers of the tensors in a task block (assembly/attention/task.ts). */
const OPERAND = { q: 0, k: 1, v: 2, out: 3, grad: 4, dq: 5, dk: 6, dv: 7 } as const;

export const attention: Lowering<"attention"> = {
  supports: attentionDatapath,
  run(context, args) {
    withTask(context, args, (task) => forward(context, args, task));
  },
};

export const attentionBackward: Lowering<"attentionBackward"> = {
  supports: attentionDatapath,
  run(context, args) {
    withTask(context, args, (task) => backward(context, args, task));
  },
};

function forward(context: LoweringContext, args: AttentionArgs, task: number): void {
  const { pool } = context;
  const { out, lse, maxLogits, q, v } = args;
  const sizes = attentionSizes(args);
  describeTensor(context, task, OPERAND.out, out, args);
  pool.run("attentionFill", { total: lse.size }, { to: lse.address, value: EMPTY });
  const compute = (maxima: number): void => {
    describeStatistics(context, task, args, { lse: lse.address, maxima, deltas: NULL });
    const weight = 64 * Math.min(sizes.keys, 2 ** 20) * (q.shape.at(-1) as number);
    runUnits(context, "attention", "attentionUnits", task, weight + (v.shape.at(-1) as number));
  };
  if (!maxLogits) {
    compute(NULL);
    return;
  }
  context.withTemporary(4 * lse.size, (maxima) => {
    pool.run("attentionFill", { total: lse.size }, { to: maxima, value: EMPTY });
    compute(maxima);
    const rows = { batches: sizes.statisticBatches, rows: sizes.queries };
    pool.run(
      "attentionMaxima",
      { total: sizes.heads, weight: lse.size },
      { task, to: maxLogits.address, ...rows },
    );
  });
}

function backward(context: LoweringContext, args: AttentionBackwardArgs, task: number): void {
  const { pool } = context;
  const { lse, dbias, dsinks } = args;
  const sizes = attentionSizes(args);
  describeTensor(context, task, OPERAND.out, args.result, args);
  for (const name of ["grad", "dq", "dk", "dv"] as const)
    describeTensor(context, task, OPERAND[name], args[name], args);
  context.withTemporary(4 * lse.size, (deltas) => {
    // rows after the length of a sequence have no delta of their own, and the caller's lse need not be -infinity there
    pool.run("attentionFill", { total: lse.size }, { to: deltas, value: 0 });
    describeStatistics(context, task, args, { lse: lse.address, maxima: NULL, deltas });
    runUnits(context, "attentionDeltas", "attentionUnits", task, 64);
    withScoreGrads(context, args, task, () => {
      const weight = 128 * Math.min(sizes.keys, 2 ** 20) * (args.q.shape.at(-1) as number);
      runUnits(context, "attentionQueryGrads", "attentionUnits", task, weight);
      runUnits(context, "attentionKeyGrads", "attentionKeyUnits", task, weight);
      if (dbias) {
        const [biasBatch, biasHeads] = dbias.shape as readonly [number, number];
        const job = { total: biasBatch * biasHeads * sizes.queries, weight: sizes.keys };
        const target = { to: dbias.address, type: wideOf(dbias) };
        pool.run("attentionBiasGrads", job, { task, ...target, biasBatch, biasHeads });
      }
    });
    if (!dsinks) return;
    const rows = { batches: sizes.statisticBatches, rows: sizes.queries };
    pool.run(
      "attentionSinkGrads",
      { total: sizes.heads, weight: lse.size },
      { task, grads: dsinks.address, ...rows },
    );
  });
}

/** Calls `body`, and if the gradient of the bias is requested, provides memory in the task for the gradients of all scores. */
function withScoreGrads(
  context: LoweringContext,
  args: AttentionBackwardArgs,
  task: number,
  body: () => void,
): void {
  const { batch, heads, queries, keys } = attentionSizes(args);
  const count = batch * heads * queries * keys;
  if (!args.dbias || count === 0) {
    body();
    return;
  }
  context.withTemporary(4 * count, (grads) => {
    context.pool.run("attentionFill", { total: count }, { to: grads, value: 0 });
    context.pool.call("attentionScoreGrads", { task, grads });
    body();
  });
}

function runUnits(
  { pool }: LoweringContext,
  name: "attention" | "attentionDeltas" | "attentionQueryGrads" | "attentionKeyGrads",
  units: "attentionUnits" | "attentionKeyUnits",
  task: number,
  weight: number,
): void {
  const total = pool.call(units, { task });
  pool.run(name, { total, weight, scratch: pool.call("attentionScratch", { task }) }, { task });
}

/** Calls `body` with a task block that has the arguments of both passes. */
function withTask(context: LoweringContext, args: AttentionRule, body: (task: number) => void): void {
  context.withTemporary(ATTENTION_TASK.bytes, (task) => {
    describeDatapath(context, task, args);
    const { batch, heads, keyHeads, queries, keys } = attentionSizes(args);
    const [width, valueWidth] = [args.q.shape.at(-1) as number, args.v.shape.at(-1) as number];
    const { pool } = context;
    const type = wideOf(args.q);
    pool.call("attentionShape", { task, batch, heads, keyHeads, queries, keys, width, valueWidth, type });
    const { blockKeys, splitKeys } = args.plan;
    pool.call("attentionPlan", { task, blockKeys, splitKeys, scale: args.scale });
    for (const name of ["q", "k", "v"] as const)
      describeTensor(context, task, OPERAND[name], args[name], args);
    describeKeys(context, task, args);
    describeScores(context, task, args);
    body(task);
  });
}

/** Writes the datapath and the operand type of all products, as for a matrix product. */
function describeDatapath({ pool }: LoweringContext, task: number, args: AttentionRule): void {
  const choice = attentionDatapath(args);
  if (!choice.ok) return;
  const { dotAdd }: DatapathRow = DATAPATHS[choice.name];
  pool.call("gemmShape", { task, rows: 0, columns: 0, depth: 0, output: NULL });
  pool.call("gemmDatapath", {
    task,
    kernel: dotAdd ? KERNEL.wide : KERNEL.plain,
    step: dotAdd?.step ?? 0,
    alignBits: dotAdd?.alignBits ?? 0,
    fractionBits: dotAdd?.fractionBits ?? 0,
    zeroOperand: GEMM_TASK.noExponent,
    zeroAccumulator: dotAdd?.zeroAccumulator ?? 0,
    group: 1,
  });
  const format = { data: NULL, width: storageBits(args.q.dtype), word: wordOf(args.q.dtype) };
  for (const operand of [0, 1])
    pool.call("gemmOperand", { task, operand, ...format, staging: STAGING.plain });
}

/** Writes the address and the strides of q, k or v, or of a tensor with the same shape. */
function describeTensor(
  { pool }: LoweringContext,
  task: number,
  operand: number,
  tensor: Tensor,
  { layout, pages }: AttentionRule,
): void {
  const [heads, width] = tensor.shape.slice(-2) as [number, number];
  const isPaged = pages !== undefined && (operand === OPERAND.k || operand === OPERAND.v);
  const line = heads * width;
  const [first = 0, second = 0] = tensor.shape;
  const rows = { data: tensor.address, headStride: width };
  if (layout === "sbhd" && !isPaged)
    pool.call("attentionTensor", { task, operand, ...rows, batchStride: line, rowStride: second * line });
  else if (layout === "thd" && !isPaged)
    pool.call("attentionTensor", { task, operand, ...rows, batchStride: 0, rowStride: line });
  else
    pool.call("attentionTensor", {
      task,
      operand,
      ...rows,
      batchStride: first && second * line,
      rowStride: line,
    });
}

/** Writes the lengths of sequences and which keys are visible. */
function describeKeys({ pool }: LoweringContext, task: number, args: AttentionRule): void {
  const { queryLengths, queryStarts, keyLengths, keyStarts, pages, mask, k } = args;
  pool.call("attentionLengths", {
    task,
    queryLengths: queryLengths?.address ?? NULL,
    queryStarts: queryStarts?.address ?? NULL,
    keyLengths: keyLengths?.address ?? NULL,
    keyStarts: keyStarts?.address ?? NULL,
    cumulative: args.layout === "thd",
  });
  if (pages) {
    const [count, length] = k.shape as readonly [number, number];
    const pagesOfSequence = pages.shape[1] as number;
    pool.call("attentionPages", { task, pages: pages.address, length, count, pagesOfSequence });
  }
  const { left, right, alignsEnd } = args;
  const strides = strideOf(mask);
  pool.call("attentionMask", { task, alignsEnd, left, right, mask: mask?.address ?? NULL, ...strides });
}

/** The strides of the first two dimensions of [1 or B, 1 or H, Sq, Sk]: 0 for a dimension of size 1. */
function strideOf(tensor: Tensor | undefined): { batchStride: number; headStride: number } {
  const [batch = 1, heads = 1, rows = 0, columns = 0] = tensor?.shape ?? [];
  return { batchStride: batch > 1 ? heads * rows * columns : 0, headStride: heads > 1 ? rows * columns : 0 };
}

/** Writes the options that change scores and probabilities. */
function describeScores({ pool }: LoweringContext, task: number, args: AttentionRule): void {
  const { bias, slopes, sinks, softcap, dropout, biasBeforeScale } = args;
  pool.call("attentionBias", {
    task,
    bias: bias?.address ?? NULL,
    type: bias ? wideOf(bias) : 0,
    ...strideOf(bias),
    beforeScale: biasBeforeScale,
  });
  pool.call("attentionScores", {
    task,
    slopes: slopes?.address ?? NULL,
    slopeBatch: slopes?.shape.length === 2 ? (slopes.shape[1] as number) : 0,
    softcap,
    inverseSoftcap: softcap && Math.fround(1 / softcap),
    sinks: sinks?.address ?? NULL,
  });
  const { threshold, keep } = dropoutOf(dropout);
  const { seedLo, seedHi, offsetLo } = drawsOf(dropout);
  pool.call("attentionDropout", {
    task,
    threshold,
    keep,
    seedLow: seedLo,
    seedHigh: seedHi,
    offset: offsetLo,
    allHeads: dropout?.allHeads ?? 0,
    firstHead: dropout?.firstHead ?? 0,
  });
}

function describeStatistics(
  { pool }: LoweringContext,
  task: number,
  args: AttentionRule,
  addresses: { readonly lse: number; readonly maxima: number; readonly deltas: number },
): void {
  const { heads, queries } = attentionSizes(args);
  const batchStride = args.layout === "thd" ? 0 : heads * queries;
  pool.call("attentionStatistics", { task, ...addresses, batchStride, headStride: queries });
}
