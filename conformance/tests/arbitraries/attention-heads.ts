/**
 * Cases of attention with head sizes for which a GPU has tensor-core kernels. Shapes cross the boundaries of tiles, and elements
 * come from a drawn seed.
 */
import * as fc from "fast-check";
import { ATTENTION_LAYOUTS } from "../../../src/backends/ops/attention.js";
import { elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { indexIn } from "../../arbitraries/matrices.js";
import { words } from "../../arbitraries/random.js";
import type { CaseAim, CaseDimensions } from "../../operations/attention/aim.js";
import { type AttentionBackwardCase, outShape } from "../../operations/attention/attention.js";
import { type AttentionCase, attentionCase } from "../../operations/attention/case.js";
import { isApart } from "../../operations/attention/heads.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";

/** The widths of keys and values of a head. */
export type HeadWidths = readonly [width: number, valueWidth: number];

/** The widths of heads with kernels on tensor cores, and others of similar widths. */
export const HEAD_WIDTHS = {
  "64": [64, 64],
  "96": [96, 96],
  "128": [128, 128],
  "192, values of 128": [192, 128],
  "256": [256, 256],
  "80": [80, 80],
  "64, values of 128": [64, 128],
} as const satisfies Record<string, HeadWidths>;

/** The largest number of multiplications of a forward pass. */
const MAX_PRODUCTS = 2 ** 24;

function limitProducts(dimensions: CaseDimensions): CaseDimensions {
  const { batch, heads, queries, keys, width, valueWidth } = dimensions;
  const ofHead = queries * keys * (width + valueWidth);
  if (batch * heads[0] * ofHead <= MAX_PRODUCTS) return dimensions;
  if (heads[0] * ofHead <= MAX_PRODUCTS) return { ...dimensions, batch: 1 };
  return { ...dimensions, batch: 1, heads: 2 * ofHead <= MAX_PRODUCTS ? [2, 1] : [1, 1] };
}

function dimensionsOf([width, valueWidth]: HeadWidths): fc.Arbitrary<CaseDimensions> {
  return fc
    .record({
      layout: fc.constantFrom(...ATTENTION_LAYOUTS),
      batch: fc.constantFrom(1, 1, 2, 3),
      queries: fc.constantFrom(1, 1, 2, 3, 16, 63, 64, 65, 127, 129, 200),
      keys: fc.constantFrom(1, 7, 64, 127, 128, 129, 257, 300),
      heads: fc.constantFrom([1, 1], [2, 1], [3, 3], [4, 2], [8, 1], [12, 2] as const),
      dtype: fc.constantFrom<WideDType>("bf16", "f16"),
    } as const)
    .map((dimensions) => limitProducts({ ...dimensions, width, valueWidth }));
}

const COUNT = 193;
/** Multiples of 1/32 up to 3: scores with many different probabilities. */
const MODERATE = Array.from({ length: COUNT }, (_, i) => (i - 96) / 32);
/** Values of 17 binades: few large probabilities, and products of which small ones are truncated. */
const SPREAD = Array.from(
  { length: COUNT },
  (_, i) => (i % 2 === 0 ? 1 : -1) * 2 ** ((i % 17) - 8) * (1 + (i % 8) / 8),
);
const SPECIALS = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -0, 2 ** -24, 60_000];

/** An element counted from the front or from the back of a tensor, where keys are often hidden. */
const position = fc.oneof(fc.nat(), fc.integer({ min: -4000, max: -1 }));

function elements(shape: Shape, dtype: WideDType): fc.Arbitrary<PlainTensor<WideDType>> {
  const count = elementCount(shape);
  const codesOf = (values: readonly number[]) => rounded(dtype, [values.length], values).codes;
  const special = fc.tuple(position, fc.nat({ max: SPECIALS.length - 1 }));
  return fc
    .record({
      seed: fc.integer(),
      values: fc.constantFrom(MODERATE, MODERATE, MODERATE, MODERATE, SPREAD),
      specials: fc.oneof(
        { weight: 5, arbitrary: fc.constant([]) },
        { weight: 1, arbitrary: fc.array(special, { minLength: 1, maxLength: 3 }) },
      ),
      /** The share of the tensor, at its end, that is NaN. */
      nanShare: fc.constantFrom(...Array<number>(15).fill(0), 0.05),
    })
    .map(({ seed, values, specials, nanShare }) => {
      const table = codesOf(values);
      const specialCodes = codesOf(SPECIALS);
      const codes = words(seed, count).map((bits) => table[bits % COUNT] as number);
      for (const [index, i] of specials) codes[indexIn(index, count)] = specialCodes[i] as number;
      codes.fill(specialCodes[0] as number, count - Math.floor(count * nanShare));
      return fromCodes(dtype, shape, codes);
    });
}

/** A mask that hides one key of four, or of 64. */
function mask(shape: Shape): fc.Arbitrary<PlainTensor<"u8">> {
  return fc.tuple(fc.integer(), fc.constantFrom(4, 64)).map(([seed, period]) =>
    fromCodes(
      "u8",
      shape,
      words(seed, elementCount(shape)).map((bits) => Number(bits % period === 0)),
    ),
  );
}

function plansOf(widths: HeadWidths): CaseAim["plans"] {
  const blockKeys = Math.max(...widths) > 192 ? 64 : 128;
  return () =>
    fc.oneof(
      { weight: 5, arbitrary: fc.constant({ blockKeys, splitKeys: 0 }) },
      {
        weight: 2,
        arbitrary: fc.constantFrom(1, 2).map((keys) => ({ blockKeys, splitKeys: keys * blockKeys })),
      },
      {
        weight: 1,
        arbitrary: fc.constantFrom(16, 64, 128).map((keys) => ({ blockKeys: keys, splitKeys: 0 })),
      },
    );
}

function aimOf(widths: HeadWidths): CaseAim {
  return {
    dimensions: dimensionsOf(widths),
    datapaths: fc.constantFrom(...Array<"hopper">(9).fill("hopper"), "ada", "blackwell"),
    windows: fc.constantFrom(
      ...([
        [-1, -1],
        [-1, -1],
        [-1, -1],
        [0, 0],
        [64, 0],
        [63, 1],
        [127, -1],
        [-1, 100],
        [130, 65],
      ] as const),
    ),
    plans: plansOf(widths),
    elements,
    mask,
    pageLengths: [5, 8, 16, 64, 128, 128, 256],
    maxPages: 8,
  };
}

/** The options that change scores or probabilities, for which the GPU has other kernels. */
const DETAILS = ["mask", "bias", "alibiSlopes", "softcap", "dropout"] as const;

/** Removes all details, or all but one, from some cases. */
function withFewerDetails(attentionCase: AttentionCase): fc.Arbitrary<AttentionCase> {
  const plainOptions = {
    mask: undefined,
    bias: undefined,
    alibiSlopes: undefined,
    softcap: undefined,
  } as const;
  const plainCase: AttentionCase = { ...attentionCase, ...plainOptions, dropout: undefined };
  return fc.oneof(
    { weight: 3, arbitrary: fc.constant(plainCase) },
    {
      weight: 2,
      arbitrary: fc.constantFrom(...DETAILS).map((name) => ({ ...plainCase, [name]: attentionCase[name] })),
    },
    { weight: 2, arbitrary: fc.constant(attentionCase) },
  );
}

/**
 * Cases of heads with these widths, each with a gradient of out. Some have pages of keys, which the backward pass does not
 * support.
 */
export function headCase(widths: HeadWidths): fc.Arbitrary<AttentionBackwardCase> {
  return attentionCase(true, aimOf(widths))
    .filter(isApart)
    .chain(withFewerDetails)
    .chain((attentionCase) =>
      elements(outShape(attentionCase), attentionCase.q.dtype).map((grad) => ({ ...attentionCase, grad })),
    );
}
