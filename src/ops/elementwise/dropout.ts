/** Dropout of elements. */
import { needed, type OptionTable, optionsOf, u64 } from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { probability } from "../attention/options.js";
import { compute } from "../execute.js";

/** The elements that a dropout drops. */
export interface DropoutDraws {
  /** The probability that an element is dropped, from 0 to below 1. It is rounded to a multiple of 2^-16. */
  readonly probability: number;
  /** The key of the random generator, an unsigned 64-bit integer. */
  readonly seed: bigint;
  /** A number of the call, an unsigned 64-bit integer. Each offset gives independent draws. Default 0. */
  readonly offset?: bigint | undefined;
}

/** Options of `dropout`. */
export interface DropoutOptions extends DropoutDraws {
  /** The dtype of the result. Default: the dtype of x. */
  readonly outDtype?: WideDType | undefined;
}

/** @shared The checks of the fields of `DropoutDraws`. */
export const DROPOUT_DRAWS: OptionTable<DropoutDraws> = {
  probability: needed(probability),
  seed: needed(u64),
  offset: u64,
};

const checkOptions = optionsOf<DropoutOptions>({ ...DROPOUT_DRAWS, outDtype: wideDType });

/**
 * Returns x with elements replaced by +0, each with the given probability, and the other elements divided by 1 - probability:
 * one f32 multiplication, rounded once to `outDtype`. The draw of an element depends on its index, the seed and the offset
 * (numerics.md §7.14), so equal calls drop the same elements on every backend. A dropped NaN or infinity is +0 too.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an invalid option value, `DisposedError`
 * for a disposed tensor.
 */
export function dropout(x: Tensor, options: DropoutOptions): Tensor<WideDType> {
  const source = requireWide("dropout", "x", x);
  const { outDtype, probability, seed, offset = 0n } = checkOptions("dropout", options);
  const out = new Tensor(x.backend, outDtype ?? source.dtype, x.shape);
  return compute("dropout", { x: source, probability, random: { seed, offset }, out });
}
