/** Several matrix products in one call. */
import { anyListOf, anything } from "../../options.js";
import { Scope } from "../../tensor/scope.js";
import { gemm } from "./gemm.js";
import type { GemmOptions, GemmResult } from "./options.js";

const list = anyListOf(anything);

/**
 * Computes several products, each with the options of `gemm`, as TransformerEngine's `general_grouped_gemm` does. Operands and
 * options may differ. Each result is bitwise equal to the result of `gemm`, including NaN, and a product of no rows is empty.
 * Both backends run one product after the other.
 *
 * If a product is refused, no result is left, but the outputs of the products before it have been written.
 *
 * @throws `ArgumentError` for an argument that is not a list, and `ArgumentError`, `ShapeError`, `DTypeError`,
 * `UnsupportedError`, `DisposedError` and `OutOfMemoryError` as `gemm` does.
 */
export function groupedGemm(products: readonly GemmOptions[]): readonly GemmResult[] {
  const calls = list("groupedGemm", "products", products) as readonly GemmOptions[];
  using scope = new Scope();
  const results = calls.map((options) => gemm(options));
  for (const { out, preGelu, biasGradient, amax } of results)
    for (const each of [out, preGelu, biasGradient, amax]) if (each) scope.keep(each);
  return results;
}
