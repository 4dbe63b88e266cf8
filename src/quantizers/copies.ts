/** What makes each copy of a tensor. */
import { FakeQuantizer } from "./fake.js";
import {
  type CopyQuantizer,
  HybridQuantizer,
  type HybridQuantizerOptions,
  IdentityQuantizer,
} from "./hybrid.js";
import type { Quantizer } from "./quantizer.js";

/** @shared Returns what makes each copy: of a quantizer of both copies, the quantizer itself. */
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
 * Returns what makes a copy if `replace` takes the place of the quantizer that makes its codes. A copy in high precision stays
 * so, and a copy that is dequantized is dequantized.
 *
 * @shared
 */
export function replaceCodes(
  copy: CopyQuantizer,
  replace: (quantizer: Quantizer) => CopyQuantizer,
): CopyQuantizer {
  if (copy instanceof IdentityQuantizer) return copy;
  if (!(copy instanceof FakeQuantizer)) return replace(copy);
  const made = replace(copy.quantizer);
  return made instanceof FakeQuantizer || made instanceof IdentityQuantizer ? made : new FakeQuantizer(made);
}
