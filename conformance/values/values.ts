/** The values of codes, and the thresholds between them where rounding changes. f64 holds every value and midpoint exactly. */
import { derive, factsOf } from "../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "../../src/formats/scalar.js";

/** The layout of a named format, or the layout itself. */
export function layoutOf(format: ScalarFormat | ScalarLayout): ScalarLayout {
  return typeof format === "string" ? SCALAR_FORMATS[format] : format;
}

/**
 * The value of a code without its sign; special codes count as numbers. One past the largest code continues into the next binade.
 */
export function magnitudeOf(code: number, layout: ScalarLayout): number {
  const binade = 2 ** layout.mantissaBits;
  const field = Math.floor(code / binade);
  const isSubnormal = field === 0 && layout.subnormals;
  const significand = (code % binade) + (isSubnormal ? 0 : binade);
  return significand * 2 ** ((isSubnormal ? 1 : field) - layout.bias - layout.mantissaBits);
}

/** Whether the codes of a layout are two's complement. */
export function isInteger({ specials }: ScalarLayout): boolean {
  return specials === "integer" || specials === "symmetric";
}

/** The value of a code, NaN, infinities and -0 included. */
export function valueOfCode(code: number, layout: ScalarLayout): number {
  const { maxCode, hasInfinity } = derive(layout);
  const signBit = 2 ** (layout.exponentBits + layout.mantissaBits);
  const negative = layout.signed && code >= signBit;
  if (isInteger(layout))
    return (negative ? -1 : 1) * magnitudeOf(negative ? 2 * signBit - code : code, layout);
  const bare = negative ? code - signBit : code;
  if (layout.specials === "fnuz" && negative && bare === 0) return Number.NaN;
  if (bare > maxCode && !(hasInfinity && bare === maxCode + 1)) return Number.NaN;
  const magnitude = bare > maxCode ? Number.POSITIVE_INFINITY : magnitudeOf(bare, layout);
  return negative ? -magnitude : magnitude;
}

/** The number of bits that a tensor uses to store one code. */
export function storageBitsOf(format: ScalarFormat | ScalarLayout): number {
  return (typeof format === "string" ? factsOf(format) : derive(format)).storageBits;
}

/** The bit pattern of the f32 nearest to a number. */
export function bitsOf(x: number): number {
  return new Uint32Array(Float32Array.of(x).buffer)[0] as number;
}

/** The f32 value of a bit pattern. */
export function fromBits(bits: number): number {
  return new Float32Array(Uint32Array.of(bits).buffer)[0] as number;
}
