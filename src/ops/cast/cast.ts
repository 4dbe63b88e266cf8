/** Elementwise conversion of f32, bf16 and f16 tensors to codes of a scalar format, and back. */
import type { OverflowName, RoundingName } from "../../backends/ops.js";
import { ArgumentError, DTypeError, ShapeError } from "../../errors.js";
import { OVERFLOW, ROUNDING } from "../../formats/contract.gen.js";
import { derive, type FormatFacts, factsOf, resolveFormat } from "../../formats/derive.js";
import type { ScalarLayout } from "../../formats/scalar.js";
import { anything, needed, notNaN, oneOf, optionsOf, u64 } from "../../options.js";
import type { RandomSource } from "../../random.js";
import { requireTensor, requireWide, requireWords, wideDType } from "../../tensor/require.js";
import { type DType, type Shape, storageBits, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { compute, requireBackendOf } from "../execute.js";

/** A scalar format: its name, an alias, or a layout. */
export type FormatLike = string | ScalarLayout;

/** Options of `encode`. */
export interface EncodeOptions {
  /** The format of the codes: a name, an alias, or a custom layout. */
  readonly format: FormatLike;
  /** The rounding mode. Default `tiesToEven`. */
  readonly rounding?: RoundingName | undefined;
  /** What happens to values beyond the format's maximum. Default `saturate`. */
  readonly overflow?: OverflowName | undefined;
  /** The seed of the random bits for rounding `stochastic`. Default 0. */
  readonly seed?: bigint | undefined;
  /** The offset of the random bits for rounding `stochastic`. Default 0. */
  readonly offset?: bigint | undefined;
  /**
   * Random bits for rounding `stochastic`, which replace the bits of `seed` and `offset`: a u32 tensor in the shape of x,
   * one word for each element (numerics.md, choice 6).
   */
  readonly randomBits?: Tensor<"u32"> | undefined;
  /** A factor that is rounded to f32 and multiplies x, in f32, before the conversion. Default 1. */
  readonly scale?: number | undefined;
}

/** The names of the rounding modes. */
export const ROUNDINGS = Object.keys(ROUNDING) as readonly RoundingName[];
/** The names of the overflow modes. */
export const OVERFLOWS = Object.keys(OVERFLOW) as readonly OverflowName[];

/** @shared The random bits of seed 0 and offset 0. */
export const NO_RANDOM: RandomSource = { seed: 0n, offset: 0n };

/** @shared */
export const rounding = oneOf(ROUNDINGS);
/** @shared Checks the name of an overflow mode. */
export const overflow = oneOf(OVERFLOWS);

const checkEncode = optionsOf<EncodeOptions>({
  format: needed(anything),
  rounding,
  overflow,
  seed: u64,
  offset: u64,
  randomBits: requireWords,
  scale: notNaN,
});

const checkDecode = optionsOf<{ readonly format?: FormatLike; readonly dtype?: WideDType }>({
  format: anything,
  dtype: wideDType,
});

/**
 * Encodes `x` (f32, bf16 or f16, any shape): each element is widened to f32, multiplied by `scale` in f32, and rounded once to
 * the format.
 *
 * For a named format, the result has that format as its dtype. For a layout, the result holds codes as u8, u16 or u32. 4-bit
 * codes of a layout are packed two per byte, which halves the last dimension. For NaN, infinities, overflow and signed zeros
 * see numerics.md, choices 2 to 6.
 *
 * @throws `ShapeError` for 4-bit codes and an odd last dimension, or another number of random bits than elements, `DTypeError`
 * for an x that is not f32, bf16 or f16 or random bits that are not u32, `ArgumentError` for an unknown format, an invalid
 * option value, or random bits for another rounding or on another backend, `DisposedError` for a disposed tensor.
 */
export function encode(x: Tensor, options: EncodeOptions): Tensor {
  const source = requireWide("encode", "x", x);
  const ownOptions = checkEncode("encode", options);
  const { rounding = "tiesToEven", overflow = "saturate", scale = 1, seed = 0n, offset = 0n } = ownOptions;
  const { randomBits } = ownOptions;
  if (randomBits) requireRandomBits(source, rounding, randomBits);
  const { facts, dtype } = lookUp(ownOptions.format);
  const out = new Tensor(x.backend, dtype, codeShape(dtype, facts, x.shape));
  const random = { seed, offset };
  const how = { word: facts.word, rounding, overflow, random, randomBits, scale };
  return compute("encode", { x: source, ...how, out });
}

/** Throws unless random bits go with an encoding of `x`: `ArgumentError` for another rounding, `ShapeError` for another size. */
function requireRandomBits(x: Tensor, rounding: RoundingName, randomBits: Tensor<"u32">): void {
  if (rounding !== "stochastic")
    throw new ArgumentError(
      `encode: randomBits are for rounding stochastic; the rounding is ${rounding}; leave them out`,
    );
  requireBackendOf("encode", x, randomBits);
  if (randomBits.size !== x.size)
    throw new ShapeError(
      `encode: randomBits are [${randomBits.shape}]; x is [${x.shape}], and each of its elements takes a word`,
    );
}

/**
 * Decodes codes to their values. A value is exact in f32 and is then rounded once to `dtype`: to nearest even, with overflow to
 * infinity.
 *
 * @throws `DTypeError` if x does not hold codes of the format, `ArgumentError` for a `dtype` other than f32, bf16 and f16,
 * `DisposedError` for a disposed tensor.
 */
export function decode<D extends WideDType = "f32">(
  x: Tensor,
  options: { readonly format?: FormatLike; readonly dtype?: D } = {},
): Tensor<D> {
  const { backend } = requireTensor("decode", "x", x);
  const ownOptions = checkDecode("decode", options);
  const { facts, dtype } = lookUp(ownOptions.format === undefined ? x.dtype : ownOptions.format);
  if (storageBits(x.dtype) !== storageBits(dtype)) {
    throw new DTypeError(`decode: ${dtype} codes take ${storageBits(dtype)} bits each; x is ${x.dtype}`);
  }
  const packed = facts.storageBits === 4 && x.dtype === "u8";
  const shape = packed ? [...x.shape.slice(0, -1), (x.shape.at(-1) ?? 1) * 2] : x.shape;
  const out = new Tensor(backend, ownOptions.dtype ?? ("f32" as D), shape);
  return compute("decode", { x, word: facts.word, out });
}

/**
 * Returns `x` converted to `dtype`, rounded to nearest even, with overflow to infinity. Returns `x` itself if it has that
 * dtype.
 *
 * @shared
 */
export function castTo(x: Tensor<WideDType>, dtype: WideDType): Tensor<WideDType> {
  if (x.dtype === dtype) return x;
  if (x.dtype !== "f32") return decode(x, { dtype });
  return encode(x, { format: dtype, overflow: "nonfinite" }) as Tensor<WideDType>;
}

/** @shared Returns the format word (the format's fields packed in a u32, see assembly/contract.ts) of a name, alias or layout. */
export function formatWordOf(format: FormatLike): number {
  return lookUp(format).facts.word;
}

function lookUp(format: FormatLike): { facts: FormatFacts; dtype: DType } {
  if (typeof format === "string") {
    const name = resolveFormat(format);
    return { facts: factsOf(name), dtype: name };
  }
  const facts = derive(format);
  return { facts, dtype: facts.storageBits <= 8 ? "u8" : facts.storageBits === 16 ? "u16" : "u32" };
}

/** Returns the shape of the codes. A 4-bit format that is given by its layout has no dtype; its codes are packed two per u8. */
function codeShape(dtype: DType, facts: FormatFacts, shape: Shape): Shape {
  if (dtype !== "u8" || facts.storageBits !== 4) return shape;
  const last = shape.at(-1) ?? 1;
  if (last % 2 !== 0)
    throw new ShapeError(`encode: 4-bit codes share bytes and the last dimension, ${last}, is odd; pad it`);
  return [...shape.slice(0, -1), last / 2];
}
