/** Everything that follows from a scalar format's row: its word, its limits, its storage, its names. */

import { ArgumentError } from "../errors.js";
import { boolean, describe, integer, needed, oneOf, optionsOf } from "../options.js";
import { SPECIALS } from "./contract.gen.js";
import { FORMAT_ALIASES, SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "./scalar.js";

/** The bit of a format word that says whether codes have a sign. */
const SIGNED = 1 << 8;

/** The largest finite f32, which is no row of the table. */
export const FLT_MAX = (2 - 2 ** -23) * 2 ** 127;

/** What can be known about a scalar format without encoding anything. */
export interface FormatFacts {
  /** The format word of assembly/contract.ts. */
  readonly word: number;
  /** Bits of a code, the sign included. */
  readonly bits: number;
  /** Bits of a code as tensors store it: 4 (two codes a byte), 8, 16 or 32. */
  readonly storageBits: number;
  /** The largest finite value and its code. */
  readonly max: number;
  /** The code of `max`. */
  readonly maxCode: number;
  /** The exponent of the largest finite value, `emax` of OCP MX. */
  readonly maxExponent: number;
  /** The smallest positive normal value. */
  readonly minNormal: number;
  /** The smallest positive value; the smallest normal where there are no subnormals. */
  readonly minPositive: number;
  /** Whether some code is an infinity. */
  readonly hasInfinity: boolean;
  /** Whether some code is a NaN. */
  readonly hasNaN: boolean;
}

const checkLayout = optionsOf<ScalarLayout>({
  exponentBits: needed(integer(1, 8)),
  mantissaBits: needed(integer(0, 15)),
  bias: needed(integer(-(2 ** 15), 2 ** 15)),
  signed: needed(boolean),
  subnormals: needed(boolean),
  specials: needed(oneOf(Object.keys(SPECIALS))),
});

/**
 * The format word of a layout. Throws `ArgumentError` where the layout is no format: no finite value
 * besides zero, more than 16 bits (tf32's 19 aside), or values that f32 cannot hold.
 */
export function formatWord(layout: ScalarLayout): number {
  checkLayout(nameOf(layout), layout);
  const { exponentBits: e, mantissaBits: m, bias, signed, subnormals, specials } = layout;
  const fail = (why: string): never => {
    throw new ArgumentError(`format e${e}m${m} bias ${bias} ${specials}: ${why}`);
  };
  const isTf32 = e === 8 && m === 10 && signed;
  if (e + m + (signed ? 1 : 0) > 16 && !isTf32) fail("a code has more than 16 bits");
  if (specials === "ieee" && (m === 0 || e === 1)) fail("ieee needs a mantissa and two exponent bits");
  if (specials === "fnuz" && !(signed && subnormals)) fail("fnuz needs a sign and a zero");
  if (specials === "nanOnly" && e + m < 2) fail("every code would be zero or NaN");
  if (!subnormals && signed && m + e < 2) fail("a code has too few bits");
  const top = topField(layout);
  if (top - bias > 127) fail(`its largest binade 2^${top - bias} is beyond f32`);
  if ((subnormals ? 1 : 0) - bias - m < -149)
    fail(`its smallest value 2^${(subnormals ? 1 : 0) - bias - m} is beyond f32`);
  const flags = (signed ? SIGNED : 0) | (subnormals ? 1 << 9 : 0) | (SPECIALS[specials] << 10);
  return (e | (m << 4) | flags | (bias << 16)) >>> 0;
}

/** A layout in messages, before it is known to be one. */
function nameOf(layout: unknown): string {
  if (typeof layout !== "object" || layout === null) return "format";
  const { exponentBits, mantissaBits } = layout as Partial<ScalarLayout>;
  return `format e${describe(exponentBits)}m${describe(mantissaBits)}`;
}

/** The exponent field of the largest finite value. */
function topField({ exponentBits, mantissaBits, specials }: ScalarLayout): number {
  const ones = 2 ** exponentBits - 1;
  return specials === "ieee" || (specials === "nanOnly" && mantissaBits === 0) ? ones - 1 : ones;
}

/**
 * Derives the facts of a layout; see `formatWord` for what it refuses.
 *
 * @throws `ArgumentError` for a layout outside the domains of its fields.
 */
export function derive(layout: ScalarLayout): FormatFacts {
  const word = formatWord(layout);
  const { exponentBits, mantissaBits: m, bias, signed, subnormals, specials } = layout;
  const bits = exponentBits + m + (signed ? 1 : 0);
  const field = topField(layout);
  const fraction = 2 ** m - (specials === "nanOnly" && m > 0 ? 2 : 1);
  const minNormal = 2 ** ((subnormals ? 1 : 0) - bias);
  const subnormalTop = subnormals && field === 0;
  return {
    word,
    bits,
    storageBits: bits <= 4 ? 4 : bits <= 8 ? 8 : bits <= 16 ? 16 : 32,
    max: subnormalTop ? fraction * 2 ** (1 - bias - m) : (2 ** m + fraction) * 2 ** (field - bias - m),
    maxCode: field * 2 ** m + fraction,
    maxExponent: field - bias,
    minNormal,
    minPositive: subnormals ? minNormal * 2 ** -m : minNormal,
    hasInfinity: specials === "ieee",
    hasNaN: specials !== "finite",
  };
}

const FACTS = new Map<ScalarFormat, FormatFacts>();

/**
 * The facts of a named format.
 *
 * @throws `ArgumentError` for an unknown format.
 */
export function factsOf(format: ScalarFormat): FormatFacts {
  const known = FACTS.get(format);
  if (known) return known;
  if (typeof format !== "string" || !Object.hasOwn(SCALAR_FORMATS, format)) throw unknown(format);
  const facts = derive(SCALAR_FORMATS[format]);
  FACTS.set(format, facts);
  return facts;
}

/** Where kernels take a format word, this is f32. */
const F32_WORD = 0;

/** The format word of elements or scales, as kernels read it. */
export function wordOf(format: ScalarFormat | "f32"): number {
  return format === "f32" ? F32_WORD : factsOf(format).word;
}

/** The same for scales whose sign is ignored. */
export function unsignedWordOf(format: ScalarFormat | "f32"): number {
  return wordOf(format) & ~SIGNED;
}

/** Whether that is the name of a scalar format, not an alias. */
export function isScalarFormat(name: string): name is ScalarFormat {
  return Object.hasOwn(SCALAR_FORMATS, name);
}

/** Whether elements of that type are numbers of a signed format; f32 is one. */
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

/** The format of that name or alias, in any case. Throws `ArgumentError` that lists the names. */
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
    `no scalar format is named ${describe(name)}; there are ${SCALAR_FORMAT_NAMES.join(", ")}`,
  );
}
