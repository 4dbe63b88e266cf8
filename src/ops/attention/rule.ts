/** The arguments that attention and its gradient have in common, from checked options. */
import type { AttentionPlan, AttentionRule } from "../../backends/ops/attention.js";
import { type AttentionSizes, attentionSizes } from "../../backends/ops/attention-sizes.js";
import { ArgumentError, DTypeError, ShapeError } from "../../errors.js";
import { integer } from "../../options.js";
import { requireWide } from "../../tensor/require.js";
import { sameShape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { AttentionOptions, AttentionRuleOptions } from "./options.js";

const aWidth = integer(1, 2 ** 31 - 1);

/**
 * Returns the plan that `attention` uses by default for heads of these widths, D of keys and V of values: blocks of 128 keys,
 * or of 64 for a width above 192, and no splits. It depends on nothing else, so that a row has the same bits in every call.
 *
 * @throws `ArgumentError` for a width that is not an integer from 1.
 */
export function attentionPlan(width: number, valueWidth: number): AttentionPlan {
  aWidth("attentionPlan", "width", width);
  aWidth("attentionPlan", "valueWidth", valueWidth);
  return defaultPlan(width, valueWidth);
}

function defaultPlan(width: number, valueWidth: number): AttentionPlan {
  return { blockKeys: Math.max(width, valueWidth) > 192 ? 64 : 128, splitKeys: 0 };
}

/** @shared The three tensors of an attention. */
export interface Projections {
  /** The queries. */
  readonly q: Tensor<WideDType>;
  /** The keys. */
  readonly k: Tensor<WideDType>;
  /** The values. */
  readonly v: Tensor<WideDType>;
}

/** @shared Checks q, k and v. Throws `DTypeError` for tensors that are not of one wide dtype. */
export function requireProjections(op: string, q: Tensor, k: Tensor, v: Tensor): Projections {
  const inputs = { q: requireWide(op, "q", q), k: requireWide(op, "k", k), v: requireWide(op, "v", v) };
  if (inputs.q.dtype === inputs.k.dtype && inputs.q.dtype === inputs.v.dtype) return inputs;
  throw new DTypeError(`${op}: q is ${q.dtype}, k ${k.dtype} and v ${v.dtype}; they must be of one dtype`);
}

/**
 * @shared Returns the arguments that attention and its gradient share. Throws `ShapeError` and `ArgumentError` as `attention`
 * does.
 */
export function ruleOf(
  op: string,
  { q, k, v }: Projections,
  options: AttentionRuleOptions & Pick<AttentionOptions, "pages">,
): AttentionRule {
  const { layout = "bshd", pages, causal = false, align = "start", window = [-1, -1], softcap = 0 } = options;
  requireRanks(op, { q, k, v }, layout === "thd" ? 3 : 4, pages);
  const batch = requireSequences(op, { q, k, v }, options);
  const [heads, width] = q.shape.slice(-2) as [number, number];
  const [left, right] = window;
  const { bias, mask, alibiSlopes, sinks, dropout } = options;
  const sizes = attentionSizes({ q, k, layout, batch, pages });
  requirePairs(op, "bias", bias, sizes);
  requirePairs(op, "mask", mask, sizes);
  requireSlopes(op, alibiSlopes, sizes);
  if (sinks && !sameShape(sinks.shape, [heads]))
    throw new ShapeError(`${op}: sinks is [${sinks.shape}]; it must have a logit for each head, [${heads}]`);
  if (width === 0) throw new ShapeError(`${op}: q is [${q.shape}]; a head must have at least one element`);
  return {
    q,
    k,
    v,
    layout,
    batch,
    datapath: options.datapath ?? q.backend.datapath,
    plan: options.plan ?? defaultPlan(width, v.shape.at(-1) as number),
    scale: options.scale ?? Math.fround(1 / Math.sqrt(width)),
    alignsEnd: align === "end",
    left,
    right: causal ? 0 : right,
    queryLengths: (options.queryLengths ?? options.cuQueries) as Tensor<"i32"> | undefined,
    keyLengths: (options.keyLengths ?? options.cuKeys) as Tensor<"i32"> | undefined,
    queryStarts: options.cuPaddedQueries as Tensor<"i32"> | undefined,
    keyStarts: options.cuPaddedKeys as Tensor<"i32"> | undefined,
    pages: pages as Tensor<"i32"> | undefined,
    mask: mask as Tensor<"u8"> | undefined,
    bias: bias as Tensor<WideDType> | undefined,
    biasBeforeScale: options.biasPlace === "beforeScale",
    slopes: alibiSlopes as Tensor<"f32"> | undefined,
    softcap,
    sinks: sinks as Tensor<"f32"> | undefined,
    dropout: dropout && dropout.probability > 0 ? wholeDropout(op, dropout, heads) : undefined,
  };
}

function wholeDropout(
  op: string,
  dropout: NonNullable<AttentionRuleOptions["dropout"]>,
  heads: number,
): AttentionRule["dropout"] {
  const { probability, seed, offset = 0n, allHeads = heads, firstHead = 0 } = dropout;
  if (firstHead + heads <= allHeads) return { probability, seed, offset, allHeads, firstHead };
  throw new ArgumentError(
    `${op}: dropout has allHeads ${allHeads} and firstHead ${firstHead}, and q has ${heads} heads; give the number of all heads`,
  );
}

/** Throws `ShapeError` unless q, k and v have the number of dimensions of the layout, and heads that fit. */
function requireRanks(op: string, { q, k, v }: Projections, rank: number, pages: Tensor | undefined): void {
  for (const [name, tensor, dimensions] of [
    ["q", q, rank],
    ["k", k, pages ? 4 : rank],
    ["v", v, pages ? 4 : rank],
  ] as const)
    if (tensor.shape.length !== dimensions)
      throw new ShapeError(
        `${op}: ${name} is [${tensor.shape}]; it must have ${dimensions} dimensions in this layout`,
      );
  const [heads, width] = q.shape.slice(-2) as [number, number];
  const [keyHeads, keyWidth] = k.shape.slice(-2) as [number, number];
  if (keyWidth !== width)
    throw new ShapeError(`${op}: q is [${q.shape}] and k [${k.shape}]; their last dimensions must be equal`);
  if (keyHeads === 0 ? heads !== 0 : heads % keyHeads !== 0)
    throw new ShapeError(
      `${op}: q has ${heads} heads and k ${keyHeads}; the heads of q must be a multiple of those of k`,
    );
  if (!sameShape(k.shape.slice(0, -1), v.shape.slice(0, -1)))
    throw new ShapeError(
      `${op}: k is [${k.shape}] and v [${v.shape}]; they must be equal but for the last dimension`,
    );
}

/** Checks the lengths of sequences. Returns the number of sequences. */
function requireSequences(
  op: string,
  { q, k }: Projections,
  options: AttentionRuleOptions & Pick<AttentionOptions, "pages">,
): number {
  const { layout = "bshd", pages } = options;
  const isThd = layout === "thd";
  const wrong = isThd
    ? (["queryLengths", "keyLengths", "mask", "bias"] as const)
    : (["cuQueries", "cuKeys", "cuPaddedQueries", "cuPaddedKeys"] as const);
  for (const name of wrong)
    if (options[name])
      throw new ArgumentError(
        `${op}: ${name} goes with ${isThd ? 'layout "bshd" and "sbhd"' : 'layout "thd"'}, and the layout is "${layout}"; leave it out`,
      );
  if (isThd) return requireCumulative(op, options);
  const batch = q.shape[layout === "bshd" ? 0 : 1] as number;
  const ofKeys = pages ? pages.shape[0] : k.shape[layout === "bshd" ? 0 : 1];
  if (ofKeys !== batch)
    throw new ShapeError(
      `${op}: q is [${q.shape}] and ${pages ? `pages [${pages.shape}]` : `k [${k.shape}]`}; they must have the same number of sequences`,
    );
  requirePages(op, pages, k, options);
  for (const name of ["queryLengths", "keyLengths"] as const) {
    const lengths = options[name];
    if (lengths && !sameShape(lengths.shape, [batch]))
      throw new ShapeError(
        `${op}: ${name} is [${lengths.shape}]; it must have a length for each sequence, [${batch}]`,
      );
  }
  return batch;
}

function requirePages(op: string, pages: Tensor | undefined, k: Tensor, options: AttentionRuleOptions): void {
  if (!pages) return;
  if (pages.shape.length !== 2)
    throw new ShapeError(`${op}: pages is [${pages.shape}]; it must be [B, pages of a sequence]`);
  if (!options.keyLengths)
    throw new ArgumentError(`${op}: pages needs keyLengths; give the number of keys of each sequence`);
  if (k.shape[0] === 0 || k.shape[1] === 0)
    throw new ShapeError(`${op}: k is [${k.shape}]; with pages it must have at least one page of one row`);
}

/** Checks the sums of lengths of "thd". Returns the number of sequences. */
function requireCumulative(
  op: string,
  options: AttentionRuleOptions & Pick<AttentionOptions, "pages">,
): number {
  const { cuQueries, cuKeys, pages } = options;
  if (pages) throw new ArgumentError(`${op}: pages goes with layout "bshd"; leave it out with "thd"`);
  if (!cuQueries || !cuKeys)
    throw new ArgumentError(`${op}: layout "thd" needs cuQueries and cuKeys; give where sequences begin`);
  const [count = 0] = cuQueries.shape;
  for (const name of ["cuQueries", "cuKeys", "cuPaddedQueries", "cuPaddedKeys"] as const) {
    const sums = options[name];
    if (!sums) continue;
    if (sums.shape.length !== 1 || sums.size !== count || count === 0)
      throw new ShapeError(
        `${op}: ${name} is [${sums.shape}]; it must be [B + 1], of the same size as cuQueries`,
      );
  }
  return count - 1;
}

/** Throws `ShapeError` unless a tensor has an element for each pair of query and key. */
function requirePairs(op: string, name: string, pairs: Tensor | undefined, sizes: AttentionSizes): void {
  if (!pairs) return;
  const { batch, heads, queries, keys } = sizes;
  const [items, planes, rows, columns] = pairs.shape;
  const fits = (items === 1 || items === batch) && (planes === 1 || planes === heads);
  if (pairs.shape.length !== 4 || !fits || rows !== queries || columns !== keys)
    throw new ShapeError(
      `${op}: ${name} is [${pairs.shape}]; it must be [1 or ${batch}, 1 or ${heads}, ${queries}, ${keys}]`,
    );
}

function requireSlopes(op: string, slopes: Tensor | undefined, { batch, heads }: AttentionSizes): void {
  if (!slopes || sameShape(slopes.shape, [heads]) || sameShape(slopes.shape, [batch, heads])) return;
  throw new ShapeError(
    `${op}: alibiSlopes is [${slopes.shape}]; it must be [${heads}] or [${batch}, ${heads}]`,
  );
}
