/** Attention and its gradient on a GPU. */
import { DATAPATHS, type DatapathRow } from "../../../formats/datapath.js";
import { attentionDatapath } from "../../attention-datapath.js";
import type { AttentionArgs, AttentionRule } from "../../ops/attention.js";
import { attentionSizes, dropoutOf } from "../../ops/attention-sizes.js";
import type { OpArgs } from "../../ops.js";
import type { DeviceFacts, NativeArgs } from "../addon.js";
import { type Lowering, randomWords } from "../lowering.js";

/** Returns the arguments that both passes share. */
function commonOf(args: AttentionRule) {
  return { rule: ruleOf(args), random: randomWords(args.dropout ?? { seed: 0n, offset: 0n }) };
}

/** Returns the fields of the rule, which both passes share. */
function ruleOf(args: AttentionRule): NativeArgs<"attention">["rule"] {
  const { q, k, v, layout, batch, pages, mask, bias, slopes, dropout, plan } = args;
  const { heads, keyHeads, queries, keys, statisticBatches } = attentionSizes(args);
  const [width, valueWidth] = [q.shape.at(-1) as number, v.shape.at(-1) as number];
  const choice = attentionDatapath(args);
  const dotAdd = choice.ok ? (DATAPATHS[choice.name] as DatapathRow).dotAdd : undefined;
  const { threshold, keep } = dropoutOf(dropout);
  const isCumulative = layout === "thd";
  const [pageCount = 0, pageLength = 0] = pages ? k.shape : [];
  const rows = (tensor: typeof q): number => tensor.shape.slice(0, -2).reduce((a, b) => a * b, 1);
  const steps = (length: number) =>
    layout === "sbhd" ? { batch: 1, step: batch } : { batch: isCumulative ? 0 : length, step: 1 };
  const querySteps = steps(queries);
  const keySteps = pages ? { batch: 0, step: 1 } : steps(keys);
  return {
    batch,
    heads,
    keyHeads,
    queries,
    keys,
    width,
    valueWidth,
    queryRows: rows(q),
    queryBatch: querySteps.batch,
    queryStep: querySteps.step,
    keyRows: rows(k),
    keyBatch: keySteps.batch,
    keyStep: keySteps.step,
    q,
    k,
    v,
    step: dotAdd?.step ?? 0,
    alignBits: dotAdd?.alignBits ?? 0,
    zeroExponent: dotAdd?.zeroAccumulator ?? 0,
    ...plan,
    scale: args.scale,
    alignsEnd: args.alignsEnd,
    left: args.left,
    right: args.right,
    cumulative: isCumulative,
    lengthCount: isCumulative ? batch + 1 : batch,
    queryLengths: args.queryLengths,
    queryStarts: args.queryStarts,
    keyLengths: args.keyLengths,
    keyStarts: args.keyStarts,
    pageLength,
    pageCount,
    pagesOfSequence: pages ? (pages.shape[1] as number) : 0,
    pages,
    maskBatches: mask?.shape[0] ?? 0,
    maskHeads: mask?.shape[1] ?? 0,
    mask,
    biasBatches: bias?.shape[0] ?? 0,
    biasHeads: bias?.shape[1] ?? 0,
    bias,
    biasBeforeScale: args.biasBeforeScale,
    slopeBatches: slopes?.shape.length === 2 ? batch : 1,
    slopes,
    softcap: args.softcap,
    inverseSoftcap: args.softcap && Math.fround(1 / args.softcap),
    sinks: args.sinks,
    threshold,
    keep,
    allHeads: dropout?.allHeads ?? 0,
    firstHead: dropout?.firstHead ?? 0,
    statisticBatches,
  };
}

/** The number of queries or keys of a tile. The tensor-core kernels may leave the result of a tile to the plain kernel. */
const TILE_ROWS = 64;

/** The maximum number of queries for which kernels compute the splits of the keys in parallel. */
const MAX_PARALLEL_QUERIES = 64;
/** The number of f32 statistics after the outputs of a split record. */
const SPLIT_STATISTICS = 4;

/**
 * The size of the forward workspace in 32-bit elements: a list of tiles, then, if keys are split, partial results of each row. A
 * row has a record for each split if the splits run in parallel, and one f32 output otherwise.
 */
function forwardWorkspaceSize(args: AttentionArgs): number {
  const { plan, lse, v } = args;
  const { heads, queries, keys } = attentionSizes(args);
  const splits = plan.splitKeys ? Math.ceil(keys / plan.splitKeys) : 1;
  const listSize = 1 + args.batch * heads * Math.ceil(queries / TILE_ROWS) * splits;
  if (!plan.splitKeys) return listSize;
  const width = v.shape.at(-1) as number;
  const rowSize = queries <= MAX_PARALLEL_QUERIES ? splits * (width + SPLIT_STATISTICS) : width;
  return Math.ceil(listSize / 4) * 4 + lse.size * rowSize;
}

export const attention: Lowering<"attention"> = {
  supports: attentionDatapath,
  run({ addon, device, withTemporary }, args) {
    const { out, lse, maxLogits } = args;
    const tiles = forwardWorkspaceSize(args);
    withTemporary(4 * tiles, (workspace) =>
      addon.attention(device, { out, ...commonOf(args), lse, maxLogits, tiles, workspace }),
    );
  },
};

/** The sizes for which one kernel computes all gradients: the width of heads, and the minimum number of keys. */
const SUMS_WIDTH = 128;
const SUMS_BLOCK = 128;
const SUMS_MIN_KEYS = 4096;

/**
 * Returns whether one kernel computes dq, dk and dv. It computes five products where separate kernels compute seven, and adds f32
 * sums of dq in memory, block of keys after block of keys. This was measured to be faster for long causal attention.
 */
function sumsQueries(args: OpArgs["attentionBackward"], { major, minor }: DeviceFacts): boolean {
  const { q, v, left, right, layout, plan } = args;
  const hasElementOptions =
    [args.mask, args.bias, args.slopes, args.dropout].some((option) => option) || args.softcap !== 0;
  const isCausal = left < 0 && right >= 0 && layout !== "thd";
  const hasKernel = major === 9 && minor === 0 && q.dtype !== "f32";
  const hasSizes = [q, v].every(({ shape }) => shape.at(-1) === SUMS_WIDTH) && plan.blockKeys === SUMS_BLOCK;
  return (
    hasKernel && isCausal && hasSizes && !hasElementOptions && attentionSizes(args).keys >= SUMS_MIN_KEYS
  );
}

/** The size of the backward workspace in 32-bit elements: deltas of rows, two lists of tiles, and sums of dq. */
function backwardWorkspaceSize(args: OpArgs["attentionBackward"], hasSums: boolean): number {
  const { batch, lse, q } = args;
  const { heads, keyHeads, queries, keys } = attentionSizes(args);
  const queryTiles = batch * heads * Math.ceil(queries / TILE_ROWS);
  const keyTiles = batch * keyHeads * Math.ceil(keys / TILE_ROWS);
  const lists = lse.size + 1 + queryTiles + 1 + keyTiles;
  if (!hasSums) return lists;
  // the sums begin at a multiple of 4
  return lists + 1 + queryTiles + 3 + queryTiles * TILE_ROWS * (q.shape.at(-1) as number);
}

export const attentionBackward: Lowering<"attentionBackward"> = {
  supports: attentionDatapath,
  run({ addon, device, facts, withTemporary }, args) {
    const { grad, result, lse, dq, dk, dv, dbias, dsinks } = args;
    const hasSums = sumsQueries(args, facts);
    const tiles = backwardWorkspaceSize(args, hasSums);
    withTemporary(4 * tiles, (workspace) =>
      addon.attentionBackward(device, {
        grad,
        ...commonOf(args),
        result,
        lse,
        dq,
        dk,
        dv,
        dbias,
        dsinks,
        sumsQueries: hasSums,
        tiles,
        workspace,
      }),
    );
  },
};
