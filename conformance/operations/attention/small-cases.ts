/** The values from which small cases of attention are drawn, which the oracle computes in a short time. */
import * as fc from "fast-check";
import { ATTENTION_LAYOUTS } from "../../../src/backends/ops/attention.js";
import { elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { CaseAim, CaseDimensions } from "./aim.js";

/** The elements of q, k and v: mostly of a size that gives many probabilities, sometimes of any size, with NaN and infinities. */
function elements(shape: Shape, dtype: WideDType): fc.Arbitrary<PlainTensor<WideDType>> {
  const count = elementCount(shape);
  const calm = fc
    .array(fc.integer({ min: -96, max: 96 }), { minLength: count, maxLength: count })
    .map((steps) =>
      rounded(
        dtype,
        shape,
        steps.map((step) => step / 32),
      ),
    );
  return fc.oneof({ weight: 5, arbitrary: calm }, wideTensor(shape, { dtype }));
}

const dimensions: fc.Arbitrary<CaseDimensions> = fc.record({
  layout: fc.constantFrom(...ATTENTION_LAYOUTS),
  batch: fc.constantFrom(1, 1, 2, 3, 0),
  queries: fc.constantFrom(0, 1, 1, 2, 3, 7, 17, 65),
  keys: fc.constantFrom(0, 1, 3, 8, 15, 16, 17, 33, 70),
  heads: fc.constantFrom([1, 1] as const, [2, 1] as const, [3, 3] as const, [4, 2] as const),
  width: fc.constantFrom(1, 2, 8, 15, 16, 17, 24),
  valueWidth: fc.constantFrom(1, 8, 9, 16, 20),
  dtype: wideType(),
});

/** A drawn pair of sizes whose oracle takes too long is replaced by a smaller one: the number of pairs is at most this. */
const MOST_PAIRS = 600;

function limited(each: CaseDimensions): CaseDimensions {
  const { heads, batch, queries, keys } = each;
  const pairs = Math.max(batch, 1) * heads[0] * queries * keys;
  if (pairs <= MOST_PAIRS) return each;
  return {
    ...each,
    batch: Math.min(batch, 1),
    heads: [1, 1],
    queries: queries * keys > MOST_PAIRS ? 7 : queries,
  };
}

function mask(shape: Shape): fc.Arbitrary<PlainTensor<"u8">> {
  const count = elementCount(shape);
  return fc
    .array(fc.constantFrom(0, 0, 1, 255), { minLength: count, maxLength: count })
    .map((codes) => fromCodes("u8", shape, codes));
}

/** Widths up to 24, and blocks from 16 keys on. */
export const SMALL: CaseAim = {
  dimensions: dimensions.map(limited),
  datapaths: fc.constantFrom("hopper", "hopper", "hopper", "ada", "blackwell", "fp32"),
  windows: fc.constantFrom([-1, -1], [-1, -1], [0, 0], [5, 2], [-1, 3], [20, -1]),
  plans: () =>
    fc.constantFrom(
      { blockKeys: 16, splitKeys: 0 },
      { blockKeys: 16, splitKeys: 16 },
      { blockKeys: 16, splitKeys: 48 },
      { blockKeys: 64, splitKeys: 64 },
      { blockKeys: 128, splitKeys: 0 },
    ),
  elements,
  mask,
  pageLengths: [5, 16],
  maxPages: 4,
};
