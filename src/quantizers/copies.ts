/** The quantizer of each copy of a tensor. */
import { FakeQuantizer } from "./fake.js";
import {
  type CopyQuantizer,
  HybridQuantizer,
  type HybridQuantizerOptions,
  IdentityQuantizer,
} from "./hybrid.js";
import type { Quantizer } from "./quantizer.js";

/** @shared Returns the quantizer of each copy. A quantizer that creates both copies is returned for both. */
export function copyQuantizersOf(quantizer: CopyQuantizer | HybridQuantizer): HybridQuantizerOptions {
  if (!(quantizer instanceof HybridQuantizer))
    return { rowwiseQuantizer: quantizer, columnwiseQuantizer: quantizer, columnwiseSource: "original" };
  const { rowwiseQuantizer, columnwiseQuantizer, columnwiseSource } = quantizer;
  return { rowwiseQuantizer, columnwiseQuantizer, columnwiseSource };
}

/** @shared The inverse of `copyQuantizersOf`. */
export function quantizerOfCopies(copies: HybridQuantizerOptions): CopyQuantizer | HybridQuantizer {
  const { rowwiseQuantizer: rowwise, columnwiseQuantizer: columnwise } = copies;
  const areWide = rowwise instanceof IdentityQuantizer && columnwise instanceof IdentityQuantizer;
  return areWide || rowwise === columnwise ? rowwise : new HybridQuantizer(copies);
}

/**
 * Returns the quantizer of a copy, in which `replace` has replaced the quantizer of the codes. A copy in high precision stays in
 * high precision, and a dequantized copy stays dequantized.
 *
 * @shared
 */
export function replaceCodes(
  copy: CopyQuantizer,
  replace: (quantizer: Quantizer) => CopyQuantizer,
): CopyQuantizer {
  if (copy instanceof IdentityQuantizer) return copy;
  if (!(copy instanceof FakeQuantizer)) return replace(copy);
  const replaced = replace(copy.quantizer);
  return replaced instanceof FakeQuantizer || replaced instanceof IdentityQuantizer
    ? replaced
    : new FakeQuantizer(replaced);
}
