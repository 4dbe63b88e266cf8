/** The type of a mistake in scales. */
import type { RuleResult } from "../../../../src/explain/scale-rules.js";
import type { View } from "../view.js";

/** A wrong way to compute scales. */
export interface ScaleSuspect {
  /** The mistake, in words. */
  readonly words: string;
  /** The scale of a block; undefined if the mistake cannot occur for this tensor. */
  readonly of: (view: View, block: number) => RuleResult | undefined;
  /** Whether only the stored scales are wrong; the codes are then correct. */
  readonly isStorage?: true;
}
