/** The arguments of casts, and their tensors. */
import type { OVERFLOW, ROUNDING } from "../../formats/contract.gen.js";
import type { RandomSource } from "../../random.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type Tensors, X } from "../tensors.js";

/** A rounding mode of `encode` (numerics.md §1): one of IEEE 754, round to odd, or stochastic rounding. */
export type RoundingName = keyof typeof ROUNDING;

/**
 * An overflow mode (numerics.md §1). Values beyond the format's maximum become the maximum (`saturate`), or infinity or NaN
 * (`nonfinite`); under `propagate`, finite values become the maximum, and infinities become infinity or NaN.
 */
export type OverflowName = keyof typeof OVERFLOW;

/** Arguments of `encode`: out = the codes of x * scale, rounded once. */
export interface EncodeArgs {
  /** The values to encode. */
  readonly x: Tensor<WideDType>;
  /** The format word of the codes: the format's fields packed in a u32 (assembly/contract.ts). */
  readonly word: number;
  /** The rounding mode. */
  readonly rounding: RoundingName;
  /** What happens to values beyond the format's maximum. */
  readonly overflow: OverflowName;
  /** The random bits for rounding `stochastic`, selected by element index. Not read for another mode. */
  readonly random: RandomSource;
  /** Random bits that replace the bits of `random`: a u32 for each element, in the shape of x. */
  readonly randomBits?: Tensor<"u32"> | undefined;
  /** An f32 factor that multiplies x, in f32, before the rounding. */
  readonly scale: number;
  /** Output: the codes, in the shape of x. */
  readonly out: Tensor;
}

/** Converts values to codes. */
export const encode: Tensors<EncodeArgs> = {
  writes: { out: "codes" },
  reads: { ...X, "randomBits?": "u32" },
};

/** Arguments of `decode`: out = the values of the codes x, rounded to out's dtype. */
export interface DecodeArgs {
  /** The codes to decode. */
  readonly x: Tensor;
  /** The format word of the codes: the format's fields packed in a u32 (assembly/contract.ts). */
  readonly word: number;
  /** Output: the values, in the shape of x. The value of a NaN code is NaN. */
  readonly out: Tensor<WideDType>;
}

/** Converts codes to values. */
export const decode: Tensors<DecodeArgs> = { writes: { out: "wide" }, reads: { x: "codes" } };

/** Arguments of `sweep`: out is the pair of digests of one chunk of 2^24 f32 bit patterns, encoded. */
export interface SweepArgs {
  /** The format word to encode to: the format's fields packed in a u32 (assembly/contract.ts). */
  readonly word: number;
  /** The rounding mode. */
  readonly rounding: RoundingName;
  /** What happens to values beyond the format's maximum. */
  readonly overflow: OverflowName;
  /** The random bits for rounding `stochastic`. The bit pattern is the element index. */
  readonly random: RandomSource;
  /** The number of the chunk, 0 to 255. */
  readonly chunk: number;
  /** Output: the two digests, [2]. */
  readonly out: Tensor<"u32">;
}

/** Computes the digests of a chunk of all f32 bit patterns, encoded. */
export const sweep: Tensors<SweepArgs> = { writes: { out: "u32" }, reads: {} };
