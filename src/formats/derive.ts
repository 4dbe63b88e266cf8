/** The facts that follow from the row of a scalar format: its format word, its limits, its storage size and its names. */

import { ArgumentError } from "../errors.js";
import { boolean, describe, integer, needed, oneOf, optionsOf } from "../options.js";
import { SPECIALS } from "./contract.gen.js";
import {
  FORMAT_ALIASES,
  SCALAR_FORMATS,
  type ScalarFormat,
  type ScalarLayout,
  type SpecialsName,
} from "./scalar.js";

/** The bit of a format word that is set if codes have a sign. */
const SIGNED = 1 << 8;

/** The largest finite f32. f32 has no row in the table of formats. */
export const FLT_MAX = (2 - 2 ** -23) * 2 ** 127;

/** The properties of a scalar format that follow from its layout. */
export interface FormatFacts {
  /** The format word: the fields of the layout packed in a u32 (assembly/contract.ts). */
  readonly word: number;
  /** The number of bits of a code, including the sign. */
  readonly bits: number;
  /** The number of bits that a code takes in a tensor: 4 (two codes per byte), 8, 16 or 32. */
  readonly storageBits: number;
  /** The largest finite value. The least value of an `integer` format is one step below its negation. */
  readonly max: number;
  /** The code of `max`. */
  readonly maxCode: number;
  /** The exponent of the largest finite value, `emax` of OCP MX. */
  readonly maxExponent: number;
  /** The smallest positive normal value. */
  readonly minNormal: number;
  /** The smallest positive value. It is `minNormal` if the format has no subnormals. */
  readonly minPositive: number;
  /** Whether the format has codes for infinities. */
  readonly hasInfinity: boolean;
  /** Whether the format has a code for NaN. */
  readonly hasNaN: boolean;
}

const checkLayout = optionsOf<ScalarLayout>(
  {
    exponentBits: needed(integer(1, 8)),
    mantissaBits: needed(integer(0, 15)),
    bias: needed(integer(-(2 ** 15), 2 ** 15)),
    signed: needed(boolean),
    subnormals: needed(boolean),
    specials: needed(oneOf(Object.keys(SPECIALS))),
  },
  "layout",
);

/**
 * Returns the format word of a layout. Throws `ArgumentError` for an invalid layout: one with no finite value besides zero,
 * with more than 16 bits (except tf32 with 19), or with values that f32 cannot represent.
 */
export function formatWord(layout: ScalarLayout): number {
  return wordOfLayout(checkLayout(nameOf(layout), layout));
}

/** As `formatWord`, for a layout whose fields were checked one by one. */
function wordOfLayout(layout: ScalarLayout): number {
  const { exponentBits: e, mantissaBits: m, bias, signed, subnormals, specials } = layout;
  const fail = (why: string): never => {
    throw new ArgumentError(`format e${e}m${m} bias ${bias} ${specials}: ${why}`);
  };
  const isTf32 = e === 8 && m === 10 && signed;
  if (e + m + (signed ? 1 : 0) > 16 && !isTf32) fail("a code has more than 16 bits");
  if (specials === "ieee" && (m === 0 || e === 1)) fail("ieee needs a mantissa and two exponent bits");
  if (specials === "fnuz" && !(signed && subnormals)) fail("fnuz needs a sign and a zero");
  if (isIntegral(specials) && !(signed && subnormals && e === 1))
    fail("an integer needs a sign, a zero and one exponent bit");
  if (specials === "nanOnly" && e + m < 2) fail("every code would be zero or NaN");
  if (!subnormals && signed && m + e < 2) fail("a code has too few bits");
  const top = topField(layout);
  if (top - bias > 127) fail(`its largest binade 2^${top - bias} is beyond f32`);
  if ((subnormals ? 1 : 0) - bias - m < -149)
    fail(`its smallest value 2^${(subnormals ? 1 : 0) - bias - m} is beyond f32`);
  const flags = (signed ? SIGNED : 0) | (subnormals ? 1 << 9 : 0) | (SPECIALS[specials] << 10);
  return (e | (m << 4) | flags | (bias << 16)) >>> 0;
}

/** Whether codes are two's complement. */
export function isIntegral(specials: SpecialsName): boolean {
  return specials === "integer" || specials === "symmetric";
}

/** The fields of a layout that name it in messages; none if they cannot be read. */
function namesOf(layout: unknown): Partial<ScalarLayout> {
  try {
    const { exponentBits, mantissaBits } = Object(layout) as ScalarLayout;
    return { exponentBits, mantissaBits };
  } catch {
    return {};
  }
}

/** Returns a name of the layout for error messages. The layout may be invalid. */
function nameOf(layout: unknown): string {
  const { exponentBits, mantissaBits } = namesOf(layout);
  const isNamed = typeof exponentBits === "number" && typeof mantissaBits === "number";
  return isNamed ? `format e${exponentBits}m${mantissaBits}` : "a scalar format";
}

/** The exponent field of the largest finite value. */
function topField({ exponentBits, mantissaBits, specials }: ScalarLayout): number {
  const ones = 2 ** exponentBits - 1;
  return specials === "ieee" || (specials === "nanOnly" && mantissaBits === 0) ? ones - 1 : ones;
}

/**
 * Returns the facts of a layout. See `formatWord` for the layouts that are invalid.
 *
 * @throws `ArgumentError` for an invalid layout.
 */
export function derive(layout: ScalarLayout): FormatFacts {
  const ownLayout = checkLayout(nameOf(layout), layout);
  const word = wordOfLayout(ownLayout);
  const { exponentBits, mantissaBits: m, bias, signed, subnormals, specials } = ownLayout;
  const bits = exponentBits + m + (signed ? 1 : 0);
  const field = topField(ownLayout);
  const fraction = 2 ** m - (specials === "nanOnly" && m > 0 ? 2 : 1);
  const minNormal = 2 ** ((subnormals ? 1 : 0) - bias);
  const maxCode = field * 2 ** m + fraction;
  return {
    word,
    bits,
    storageBits: bits <= 4 ? 4 : bits <= 8 ? 8 : bits <= 16 ? 16 : 32,
    max: magnitudeOf(ownLayout, maxCode),
    maxCode,
    maxExponent: field - bias,
    minNormal,
    minPositive: subnormals ? minNormal * 2 ** -m : minNormal,
    hasInfinity: specials === "ieee",
    hasNaN: specials !== "finite" && !isIntegral(specials),
  };
}

/** The value of a finite code without its sign: 2^(e - bias) * 1.m, or 2^(1 - bias) * 0.m of a subnormal. */
function magnitudeOf({ mantissaBits: m, bias, subnormals }: ScalarLayout, code: number): number {
  const [field, fraction] = [Math.floor(code / 2 ** m), code % 2 ** m];
  if (field === 0 && subnormals) return fraction * 2 ** (1 - bias - m);
  return (2 ** m + fraction) * 2 ** (field - bias - m);
}

const FACTS = new Map<ScalarFormat, FormatFacts>();

/**
 * Returns the facts of a named format.
 *
 * @throws `ArgumentError` for an unknown format.
 */
export function factsOf(format: ScalarFormat): FormatFacts {
  const cached = FACTS.get(format);
  if (cached) return cached;
  if (typeof format !== "string" || !Object.hasOwn(SCALAR_FORMATS, format)) throw unknown(format);
  const facts = derive(SCALAR_FORMATS[format]);
  FACTS.set(format, facts);
  return facts;
}

/**
 * Returns the code of the largest magnitude of either sign.
 *
 * @shared
 */
export function lastCode({ specials }: ScalarLayout, maxCode: number, isNegative: boolean): number {
  return maxCode + (isNegative && specials === "integer" ? 1 : 0);
}

/**
 * Returns the code of a number, given its sign and the code of its magnitude; the magnitude of a negative integer may be one step
 * above `maxCode`.
 *
 * @shared
 */
export function codeOf(
  { exponentBits, mantissaBits, specials }: ScalarLayout,
  isNegative: boolean,
  code: number,
): number {
  const signBit = 2 ** (exponentBits + mantissaBits);
  if (isIntegral(specials)) return isNegative && code > 0 ? 2 * signBit - code : code;
  return isNegative && !(code === 0 && specials === "fnuz") ? signBit + code : code;
}

/** Returns the exact value of a code. Bits above the width of the format are ignored. */
export function valueOfCode(format: ScalarFormat, code: number): number {
  const { bits, maxCode, hasInfinity } = factsOf(format);
  const { signed, specials } = SCALAR_FORMATS[format];
  const signBit = 2 ** (bits - (signed ? 1 : 0));
  const [codeBits, magnitude] = [code % 2 ** bits, code % signBit];
  const sign = codeBits === magnitude ? 1 : -1;
  if (isIntegral(specials))
    return sign * magnitudeOf(SCALAR_FORMATS[format], sign > 0 ? codeBits : 2 ** bits - codeBits);
  if (magnitude > maxCode) return hasInfinity && magnitude === maxCode + 1 ? sign * Infinity : Number.NaN;
  if (specials === "fnuz" && sign < 0 && magnitude === 0) return Number.NaN;
  return sign * magnitudeOf(SCALAR_FORMATS[format], magnitude);
}

/** The format word with which kernels denote f32. */
const F32_WORD = 0;

/** Returns the format word of a named format, or the word that stands for f32. */
export function wordOf(format: ScalarFormat | "f32"): number {
  return format === "f32" ? F32_WORD : factsOf(format).word;
}

/** Returns the format word without its sign bit, for scales, whose sign is ignored. */
export function unsignedWordOf(format: ScalarFormat | "f32"): number {
  return wordOf(format) & ~SIGNED;
}

/** Whether `name` is the name of a scalar format. An alias is not. */
export function isScalarFormat(name: string): name is ScalarFormat {
  return Object.hasOwn(SCALAR_FORMATS, name);
}

/** Whether a dtype is f32 or a signed scalar format. */
export function isSigned(dtype: string): dtype is ScalarFormat | "f32" {
  if (dtype === "f32") return true;
  return isScalarFormat(dtype) && SCALAR_FORMATS[dtype].signed;
}

/** Whether every value of a format is a power of two. */
export function hasPowersOnly(format: ScalarFormat | "f32"): boolean {
  return format !== "f32" && SCALAR_FORMATS[format].mantissaBits === 0 && !SCALAR_FORMATS[format].signed;
}

/** All scalar format names, in table order. */
export const SCALAR_FORMAT_NAMES = Object.keys(SCALAR_FORMATS) as readonly ScalarFormat[];

/** Returns the format with this name or alias, which is case-insensitive. Throws `ArgumentError` for an unknown name. */
export function resolveFormat(name: string): ScalarFormat {
  if (typeof name !== "string") throw unknown(name);
  const lower = name.toLowerCase().replace(/^torch\./, "");
  const direct = SCALAR_FORMAT_NAMES.find((format) => format === lower);
  const format = direct ?? (Object.hasOwn(FORMAT_ALIASES, lower) ? FORMAT_ALIASES[lower] : undefined);
  if (format) return format;
  throw unknown(name);
}

function unknown(name: unknown): ArgumentError {
  return new ArgumentError(
    `no scalar format has the name ${describe(name)}; there are ${SCALAR_FORMAT_NAMES.join(", ")}`,
  );
}
