/** The problem of each sequence and head of a case of attention, for the oracle. */
import { DATAPATHS, type DatapathRow, datapathFor } from "../../../src/formats/datapath.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import type { HeadTask } from "../../oracle/attention/scores.js";
import { type PlainTensor, wideValues } from "../../values/plain.js";
import type { AttentionCase, Span } from "./case.js";

/** The sizes of a case. */
export interface CaseSizes {
  readonly batch: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly queries: number;
  readonly keys: number;
  readonly width: number;
  readonly valueWidth: number;
}

export function sizesOf({ q, k, v, layout, queryLengths, pages }: AttentionCase): CaseSizes {
  const rows = layout === "bshd" ? 1 : 0;
  const [heads, width] = q.shape.slice(-2) as [number, number];
  const [keyHeads] = k.shape.slice(-2) as [number];
  const batch = layout === "thd" ? (queryLengths?.data.length ?? 1) - 1 : (q.shape[1 - rows] as number);
  return {
    batch,
    heads,
    keyHeads,
    queries: q.shape[rows] as number,
    keys: pages ? (pages.shape[1] as number) * (k.shape[1] as number) : (k.shape[rows] as number),
    width,
    valueWidth: v.shape.at(-1) as number,
  };
}

function clamped(x: number, least: number, most: number): number {
  return Math.min(Math.max(x, least), most);
}

/**
 * The rows of sequence b, clamped to the tensor. `lengths` has the length of each sequence; in "thd" it has cumulative lengths,
 * which are also the starts if `starts` is undefined.
 */
function spanOf(
  b: number,
  rows: number,
  isThd: boolean,
  lengths: PlainTensor<"i32"> | undefined,
  starts: PlainTensor<"i32"> | undefined,
): Span {
  if (!lengths) return { first: 0, count: rows };
  if (!isThd) return { first: 0, count: clamped(lengths.data[b] as number, 0, rows) };
  const [begin, end] = [lengths.data[b], lengths.data[b + 1]] as [number, number];
  const first = clamped(starts ? (starts.data[b] as number) : begin, 0, rows);
  return { first, count: clamped(end - begin, 0, rows - first) };
}

export function querySpan(each: AttentionCase, b: number): Span {
  return spanOf(b, sizesOf(each).queries, each.layout === "thd", each.queryLengths, each.queryStarts);
}

export function keySpan(each: AttentionCase, b: number): Span {
  return spanOf(b, sizesOf(each).keys, each.layout === "thd", each.keyLengths, each.keyStarts);
}

/** Whether no two sequences of "thd" share a row: a row belongs to one sequence only. */
export function isApart(each: AttentionCase): boolean {
  if (each.layout !== "thd") return true;
  const { batch } = sizesOf(each);
  for (const span of [querySpan, keySpan]) {
    const spans = Array.from({ length: batch }, (_, b) => span(each, b)).filter(({ count }) => count > 0);
    const sorted = spans.toSorted((a, b) => a.first - b.first);
    for (const [i, { first }] of sorted.entries()) {
      const before = sorted[i - 1];
      if (before && before.first + before.count > first) return false;
    }
  }
  return true;
}

/** The index of the first element of row `row` of sequence b and a head, in q, k, v or a tensor of such a shape. */
export function rowIndex(
  layout: AttentionCase["layout"],
  shape: Shape,
  b: number,
  row: number,
  head: number,
): number {
  const second = shape[1] as number;
  const [heads, width] = shape.slice(-2) as [number, number];
  const place = layout === "bshd" ? b * second + row : layout === "sbhd" ? row * second + b : row;
  // the rows of "sbhd" come first, those of "bshd" second; "thd" has rows only
  return (place * heads + head) * width;
}

/** The rows of a sequence and head. */
function rowsAt(
  each: AttentionCase,
  x: PlainTensor<WideDType>,
  b: number,
  span: Span,
  head: number,
): number[][] {
  const values = wideValues(x);
  const width = x.shape.at(-1) as number;
  return Array.from({ length: span.count }, (_, i) => {
    const at = rowIndex(each.layout, x.shape, b, span.first + i, head);
    return Array.from(values.subarray(at, at + width));
  });
}

/** The rows of keys or values of a sequence and head, which may lie in pages. */
function keyRows(each: AttentionCase, x: PlainTensor<WideDType>, b: number, head: number): number[][] {
  const span = keySpan(each, b);
  const { pages } = each;
  if (!pages) return rowsAt(each, x, b, span, head);
  const [count, length] = x.shape as readonly [number, number];
  const ofSequence = pages.shape[1] as number;
  return Array.from({ length: span.count }, (_, i) => {
    const page = clamped(pages.data[b * ofSequence + Math.floor(i / length)] as number, 0, count - 1);
    return rowsAt({ ...each, layout: "bshd" }, x, page, { first: i % length, count: 1 }, head)[0] as number[];
  });
}

/** A function that reads a tensor [1 or B, 1 or H, Sq, Sk] at a sequence and head. */
function pairsOf(
  x: PlainTensor | undefined,
  read: (index: number) => number,
  b: number,
  head: number,
): ((i: number, j: number) => number) | undefined {
  if (!x) return undefined;
  const [items, planes, rows, columns] = x.shape as readonly [number, number, number, number];
  const plane = (items > 1 ? b : 0) * planes + (planes > 1 ? head : 0);
  return (i, j) => read((plane * rows + i) * columns + j);
}

/** The rule by which products are summed. */
function ruleOf({ q, datapath }: AttentionCase): HeadTask["rule"] {
  const traits = { format: q.dtype };
  const choice = datapathFor(q.dtype === "f32" ? "fp32" : datapath, traits, traits, false);
  if (!choice.ok) throw new Error(choice.reason);
  const row: DatapathRow = DATAPATHS[choice.name];
  return row.dotAdd ?? "fp32";
}

/** The attention of head `head` of sequence b. */
export function headTask(each: AttentionCase, b: number, head: number): HeadTask {
  const { heads, keyHeads, width, valueWidth } = sizesOf(each);
  const keyHead = Math.floor((head * keyHeads) / heads);
  const { bias, mask, alibiSlopes, sinks, dropout } = each;
  const biases = bias && wideValues(bias);
  const masked = pairsOf(mask, (index) => mask?.data[index] as number, b, head);
  const slopes = alibiSlopes?.data.subarray(alibiSlopes.shape.length === 2 ? b * heads : 0);
  return {
    q: rowsAt(each, each.q, b, querySpan(each, b), head),
    k: keyRows(each, each.k, b, keyHead),
    v: keyRows(each, each.v, b, keyHead),
    valueWidth,
    rule: ruleOf(each),
    type: each.q.dtype,
    scale: Math.fround(each.scale ?? 1 / Math.sqrt(width)),
    ...each.plan,
    align: each.align,
    causal: each.causal,
    window: each.window,
    masked: masked && ((i, j) => masked(i, j) !== 0),
    bias: pairsOf(bias, (index) => biases?.[index] as number, b, head),
    biasBeforeScale: each.biasPlace === "beforeScale",
    slope: slopes?.[head],
    softcap: each.softcap === undefined ? undefined : Math.fround(each.softcap),
    sink: sinks?.data[head],
    dropout: dropout && {
      probability: dropout.probability,
      seed: dropout.seed,
      offset: dropout.offset ?? 0n,
      head: BigInt(b * (dropout.allHeads ?? heads) + (dropout.firstHead ?? 0) + head),
    },
  };
}
