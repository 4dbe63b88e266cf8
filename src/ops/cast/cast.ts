/** Conversion of wide values to codes and back, element by element. */
import type { OverflowName, RoundingName } from "../../backends/ops.js";
import { DTypeError, ShapeError } from "../../errors.js";
import { OVERFLOW, ROUNDING } from "../../formats/contract.gen.js";
import { derive, type FormatFacts, factsOf, resolveFormat } from "../../formats/derive.js";
import type { ScalarLayout } from "../../formats/scalar.js";
import { anything, needed, notNaN, oneOf, optionsOf, u64 } from "../../options.js";
import type { RandomSource } from "../../random.js";
import { requireTensor, requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { type DType, type Shape, storageBits, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";

/** A scalar format by name or alias, or any layout. */
export type FormatLike = string | ScalarLayout;

/** Options of `encode`. */
export interface EncodeOptions {
  /** The format of the codes: a name, an alias or a layout of your own. */
  readonly format: FormatLike;
  /** Default `tiesToEven`. */
  readonly rounding?: RoundingName | undefined;
  /** Default `saturate`. */
  readonly overflow?: OverflowName | undefined;
  /** The seed of the random bits, for `stochastic`. Default 0. */
  readonly seed?: bigint | undefined;
  /** The offset of the random bits, for `stochastic`. Default 0. */
  readonly offset?: bigint | undefined;
  /** The factor applied before rounding, in one f32 multiplication. Default 1. */
  readonly scale?: number | undefined;
}

/** The names of the rounding modes and of the overflow policies. */
export const ROUNDINGS = Object.keys(ROUNDING) as readonly RoundingName[];
/** Every overflow mode. */
export const OVERFLOWS = Object.keys(OVERFLOW) as readonly OverflowName[];

/** Random bits of seed 0, offset 0. */
export const NO_RANDOM: RandomSource = { seed: 0n, offset: 0n };

export const rounding = oneOf(ROUNDINGS);
/** Any overflow mode. */
export const overflow = oneOf(OVERFLOWS);

const checkEncode = optionsOf<EncodeOptions>({
  format: needed(anything),
  rounding,
  overflow,
  seed: u64,
  offset: u64,
  scale: notNaN,
});

const checkDecode = optionsOf<{ readonly format?: FormatLike; readonly dtype?: WideDType }>({
  format: anything,
  dtype: wideDType,
});

/**
 * The codes of `x` (f32, bf16 or f16, any shape): x widened to f32, times `scale` in f32, rounded once.
 *
 * A named format gives a tensor of that type. A layout gives u8, u16 or u32 codes; 4-bit codes are packed two per byte, which
 * halves the last dimension. NaN, infinities, overflow and signed zeros: numerics.md, choices 2 to 6.
 *
 * @throws `ShapeError` for FP4 rows of odd length, `DTypeError` for other inputs, `ArgumentError` for an unknown format or
 * option.
 * @throws `DisposedError` for a tensor that was disposed of.
 */
export function encode(x: Tensor, options: EncodeOptions): Tensor {
  const source = requireWide("encode", "x", x);
  checkEncode("encode", options);
  const { rounding = "tiesToEven", overflow = "saturate", scale = 1, seed = 0n, offset = 0n } = options;
  const { facts, dtype } = lookUp(options.format);
  using scope = new Scope();
  const out = new Tensor(x.backend, dtype, codeShape(dtype, facts, x.shape));
  const random = { seed, offset };
  execute(x.backend, "encode", { x: source, word: facts.word, rounding, overflow, random, scale, out });
  return scope.keep(out);
}

/**
 * The values of codes, exact in f32, then rounded to `dtype` (nearest even, overflow to infinity).
 *
 * @throws `DTypeError` for a tensor that does not hold codes of a format, `ArgumentError` for a `dtype` that is not wide,
 * `DisposedError` for a tensor that was disposed of.
 */
export function decode<D extends WideDType = "f32">(
  x: Tensor,
  options: { readonly format?: FormatLike; readonly dtype?: D } = {},
): Tensor<D> {
  const { backend } = requireTensor("decode", "x", x);
  checkDecode("decode", options);
  const { facts, dtype } = lookUp(options.format === undefined ? x.dtype : options.format);
  if (storageBits(x.dtype) !== storageBits(dtype)) {
    throw new DTypeError(`decode: ${dtype} codes take ${storageBits(dtype)} bits each; x is ${x.dtype}`);
  }
  const packed = facts.storageBits === 4 && x.dtype === "u8";
  const shape = packed ? [...x.shape.slice(0, -1), (x.shape.at(-1) ?? 1) * 2] : x.shape;
  using scope = new Scope();
  const out = new Tensor(backend, options.dtype ?? ("f32" as D), shape);
  execute(backend, "decode", { x, word: facts.word, out });
  return scope.keep(out);
}

/** `x` in that type, rounded to nearest even, overflow to infinity; `x` itself if it has that type. */
export function castTo(x: Tensor<WideDType>, dtype: WideDType): Tensor<WideDType> {
  if (x.dtype === dtype) return x;
  if (x.dtype !== "f32") return decode(x, { dtype });
  return encode(x, { format: dtype, overflow: "nonfinite" }) as Tensor<WideDType>;
}

/** The format word of a name, alias or layout. */
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

/** The shape of a layout's codes. 4-bit codes have no element type of their own: a u8 holds two. */
function codeShape(dtype: DType, facts: FormatFacts, shape: Shape): Shape {
  if (dtype !== "u8" || facts.storageBits !== 4) return shape;
  const last = shape.at(-1) ?? 1;
  if (last % 2 !== 0)
    throw new ShapeError(`encode: 4-bit codes share bytes and the last dimension, ${last}, is odd; pad it`);
  return [...shape.slice(0, -1), last / 2];
}
