/** The current forward pass of a layer. */
import { ArgumentError } from "../../errors.js";
import type { RecipeState } from "../recipe-state.js";
import type { RecomputeCall } from "../recompute-call.js";

/** The current forward pass: outside of recomputed regions, or a run of such a region. */
export type ForwardPass =
  | { readonly run: "only"; readonly quantization: RecipeState }
  /** `recompute` keeps the quantization for the second run. */
  | { readonly run: "first"; readonly quantization: RecipeState; readonly recompute: RecomputeCall }
  | { readonly run: "second"; readonly quantization: RecomputeCall };

/** Returns the error for a recomputed body whose second run differs from its first. */
export function differs(difference: string): ArgumentError {
  return new ArgumentError(
    `recompute: in its second run the body ${difference}; it must do the same in both runs`,
  );
}

/** Returns `pass`. Throws `ArgumentError` if it is undefined. */
export function requirePass(pass: ForwardPass | undefined): ForwardPass {
  if (pass) return pass;
  throw new ArgumentError("linear: this layer has no quantizers; call it in an autocast region");
}
