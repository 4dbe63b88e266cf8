/**
 * Arbitraries of wide tensors for elementwise operations and reductions: all sizes and signs, specials, and the points
 * where a function changes its behaviour.
 */
import * as fc from "fast-check";
import { elementCount, type Shape, WIDE_DTYPES, type WideDType } from "../../src/tensor/shape.js";
import { fromCodes, type PlainTensor, specialsOf } from "../values/plain.js";
import { bitsOf } from "../values/values.js";
import { anIndex, indexIn, matrixShape, wideMatrix } from "./matrices.js";
import { narrowed } from "./patterns.js";

const SIGN = 0x80000000;
/** Sums have 32 lanes, and column sums have chunks of 32 rows. */
const LANES = 32;

export function wideType(): fc.Arbitrary<WideDType> {
  return fc.constantFrom(...WIDE_DTYPES);
}

/** Shapes whose last dimension is not a multiple of the lane count, and empty shapes. */
export function laneShape(most = 1024): fc.Arbitrary<Shape> {
  return matrixShape(1, LANES, most);
}

/** A tensor of this shape. Some elements are values of `edges` with either sign, or an f32 one or two steps away. */
export function wideTensor<D extends WideDType = WideDType>(
  shape: Shape,
  { edges = [0], dtype }: { readonly edges?: readonly number[]; readonly dtype?: D } = {},
): fc.Arbitrary<PlainTensor<D>> {
  const nearEdge = fc
    .tuple(fc.constantFrom(...edges), fc.constantFrom(0, 1, -1, 2, -2), fc.boolean())
    .map(([edge, steps, negative]) => {
      const magnitude = Math.max(bitsOf(edge) + steps, 0);
      return (negative ? magnitude | SIGN : magnitude) >>> 0;
    });
  const plants = fc.array(fc.tuple(anIndex(), nearEdge), { maxLength: 8 });
  const type = dtype ? fc.constant(dtype) : (wideType() as fc.Arbitrary<D>);
  return type
    .chain((chosen) => fc.tuple(wideMatrix({ dtype: chosen, shape, block: LANES, max: 448 }), plants))
    .map(([x, planted]) => {
      const codes = Array.from(x.codes);
      const size = elementCount(shape);
      for (const [at, bits] of size > 0 ? planted : []) codes[indexIn(at, size)] = narrowed(bits, x.dtype);
      return fromCodes(x.dtype, shape, codes);
    });
}

/** The lowest bit of the exponent in the codes of each wide type. */
const EXPONENT_BIT: Readonly<Record<WideDType, number>> = { f32: 2 ** 23, bf16: 2 ** 7, f16: 2 ** 10 };

/**
 * A copy in which the kinds of values in `without` are replaced by finite values of the largest exponent, with the same sign and
 * mantissa.
 */
export function replaced(
  x: PlainTensor<WideDType>,
  without: { readonly nan: boolean; readonly infinity: boolean },
): PlainTensor<WideDType> {
  const bit = EXPONENT_BIT[x.dtype];
  const specials = specialsOf(x.dtype);
  const codes = Array.from(x.codes, (code) =>
    (without.nan && specials.isNaN(code)) || (without.infinity && specials.isInfinity(code))
      ? (code & ~bit) >>> 0
      : code,
  );
  return fromCodes(x.dtype, x.shape, codes);
}
