/** A case of attention: its tensors as plain data, and how cases are drawn. */
import * as fc from "fast-check";
import type { AttentionLayout, AttentionPlan } from "../../../src/backends/ops/attention.js";
import type { AttentionDropoutOptions } from "../../../src/ops/attention/options.js";
import { elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { wideType } from "../../arbitraries/wide.js";
import { PlainTensor } from "../../values/plain.js";
import type { CaseAim, CaseDatapath, CaseDimensions, Window } from "./aim.js";
import { SMALL } from "./small-cases.js";

/** The position of a sequence among the rows of a tensor. */
export interface Span {
  readonly first: number;
  readonly count: number;
}

export interface AttentionCase {
  readonly q: PlainTensor<WideDType>;
  readonly k: PlainTensor<WideDType>;
  readonly v: PlainTensor<WideDType>;
  readonly layout: AttentionLayout;
  readonly datapath: CaseDatapath;
  readonly scale: number | undefined;
  readonly causal: boolean;
  readonly align: "start" | "end";
  readonly window: Window;
  readonly plan: AttentionPlan;
  /** The lengths of sequences; for "thd" the sums of lengths, which are also the starts. */
  readonly queryLengths: PlainTensor<"i32"> | undefined;
  readonly keyLengths: PlainTensor<"i32"> | undefined;
  /** For "thd": the starts of sequences, with gaps between them. */
  readonly queryStarts: PlainTensor<"i32"> | undefined;
  readonly keyStarts: PlainTensor<"i32"> | undefined;
  readonly pages: PlainTensor<"i32"> | undefined;
  readonly mask: PlainTensor<"u8"> | undefined;
  readonly bias: PlainTensor<WideDType> | undefined;
  readonly biasPlace: "beforeScale" | "afterScale";
  readonly alibiSlopes: PlainTensor<"f32"> | undefined;
  readonly softcap: number | undefined;
  readonly sinks: PlainTensor<"f32"> | undefined;
  readonly dropout: AttentionDropoutOptions | undefined;
}

/** The shape of q, k or v. */
function shapeOf({ layout, batch }: CaseDimensions, rows: number, heads: number, width: number): Shape {
  if (layout === "bshd") return [batch, rows, heads, width];
  return layout === "sbhd" ? [rows, batch, heads, width] : [rows, heads, width];
}

const i32 = (values: readonly number[]): PlainTensor<"i32"> =>
  new PlainTensor("i32", [values.length], Int32Array.from(values));
const f32 = (shape: Shape, values: readonly number[]): PlainTensor<"f32"> =>
  new PlainTensor("f32", shape, Float32Array.from(values));

const optional = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(arbitrary, { nil: undefined, freq: 2 });

function numbers(count: number, each: fc.Arbitrary<number>): fc.Arbitrary<readonly number[]> {
  return fc.array(each, { minLength: count, maxLength: count });
}

/** Lengths of sequences, some of them outside the tensor, or the sums of lengths for "thd". */
function lengths(
  { layout, batch }: CaseDimensions,
  rows: number,
): fc.Arbitrary<PlainTensor<"i32"> | undefined> {
  if (layout !== "thd") return optional(numbers(batch, fc.integer({ min: -2, max: rows + 2 })).map(i32));
  return numbers(batch + 1, fc.integer({ min: 0, max: rows })).map((places) =>
    i32(places.toSorted((a, b) => a - b)),
  );
}

/** Starts of sequences for "thd", anywhere in the tensor. Sequences may overlap. */
function starts(
  { layout, batch }: CaseDimensions,
  rows: number,
): fc.Arbitrary<PlainTensor<"i32"> | undefined> {
  if (layout !== "thd") return fc.constant(undefined);
  return optional(numbers(batch + 1, fc.integer({ min: 0, max: rows + 1 })).map(i32));
}

/** A shape of pairs, in which the first two dimensions may be 1. */
function pairShape(each: CaseDimensions): fc.Arbitrary<Shape> {
  return fc
    .tuple(fc.constantFrom(1, each.batch), fc.constantFrom(1, each.heads[0]))
    .map(([items, planes]) => [items, planes, each.queries, each.keys]);
}

/** Options that a case has in addition to its dimensions. "thd" has no pairs. */
function optionsFor(each: CaseDimensions, aim: CaseAim) {
  const isThd = each.layout === "thd";
  const [heads] = each.heads;
  const logit = fc.oneof(
    fc.integer({ min: -64, max: 64 }).map((n) => n / 8),
    fc.constantFrom(-Infinity, 200, Number.NaN),
  );
  return fc.record({
    datapath: aim.datapaths,
    scale: fc.constantFrom(undefined, undefined, 1, 0.125, 3, 2 ** -100, 2 ** 40),
    causal: fc.boolean(),
    align: fc.constantFrom("start", "end"),
    window: aim.windows,
    plan: aim.plans(each),
    queryLengths: lengths(each, each.queries),
    keyLengths: lengths(each, each.keys),
    queryStarts: starts(each, each.queries),
    keyStarts: starts(each, each.keys),
    mask: isThd ? fc.constant(undefined) : optional(pairShape(each).chain(aim.mask)),
    bias: isThd
      ? fc.constant(undefined)
      : optional(pairShape(each).chain((shape) => wideType().chain((dtype) => aim.elements(shape, dtype)))),
    biasPlace: fc.constantFrom("beforeScale", "afterScale"),
    alibiSlopes: optional(
      fc.boolean().chain((ofBatch) => {
        const shape = ofBatch ? [each.batch, heads] : [heads];
        return numbers(elementCount(shape), fc.constantFrom(0.5, 0.25, 0.1, 0, 2)).map((slopes) =>
          f32(shape, slopes),
        );
      }),
    ),
    softcap: fc.constantFrom(undefined, undefined, 30, 1, 0.1),
    sinks: optional(numbers(heads, logit).map((logits) => f32([heads], logits))),
    dropout: optional(
      fc.record({
        probability: fc.constantFrom(0.1, 0.5, 0.9, 2 ** -17, 0.99999999),
        seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
        offset: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
        firstHead: fc.constantFrom(0, 3),
        allHeads: fc.constant(Math.max(8, heads + 3)),
      }),
    ),
  });
}

/** Replaces keys and values by pages in a drawn order. */
function paged(
  drawn: AttentionCase,
  { batch, keys, heads, width, valueWidth, dtype }: CaseDimensions,
  { elements, pageLengths, maxPages }: CaseAim,
): fc.Arbitrary<AttentionCase> {
  if (drawn.layout !== "bshd" || batch === 0 || keys === 0) return fc.constant(drawn);
  return fc
    .tuple(fc.constantFrom(...pageLengths), fc.integer({ min: 1, max: maxPages }))
    .chain(([length, count]) => {
      const ofSequence = Math.ceil(keys / length);
      const page = fc.integer({ min: -1, max: count });
      return fc
        .record({
          k: elements([count, length, heads[1], width], dtype),
          v: elements([count, length, heads[1], valueWidth], dtype),
          table: numbers(batch * ofSequence, page),
          lengths: numbers(batch, fc.integer({ min: 0, max: keys })),
        })
        .map(({ k, v, table, lengths: drawnLengths }) => ({
          ...drawn,
          k,
          v,
          pages: new PlainTensor("i32", [batch, ofSequence], Int32Array.from(table)),
          keyLengths: i32(drawnLengths),
          mask: undefined,
          bias: undefined,
        }));
    });
}

/** Cases of attention; some of them have pages if `withPages`. */
export function attentionCase(withPages: boolean, aim: CaseAim = SMALL): fc.Arbitrary<AttentionCase> {
  const { elements } = aim;
  return aim.dimensions.chain((dimension) => {
    const { dtype, queries, keys, heads, width, valueWidth } = dimension;
    const drawn = fc
      .record({
        q: elements(shapeOf(dimension, queries, heads[0], width), dtype),
        k: elements(shapeOf(dimension, keys, heads[1], width), dtype),
        v: elements(shapeOf(dimension, keys, heads[1], valueWidth), dtype),
        options: optionsFor(dimension, aim),
      })
      .map(
        ({ options, ...tensors }) =>
          ({ ...tensors, layout: dimension.layout, pages: undefined, ...options }) as AttentionCase,
      );
    if (!withPages) return drawn;
    return drawn.chain((full) =>
      fc.boolean().chain((isPaged) => (isPaged ? paged(full, dimension, aim) : fc.constant(full))),
    );
  });
}
