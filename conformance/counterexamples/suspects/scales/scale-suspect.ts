/** What a suspect for scales is. */
import type { RuleResult } from "../../../../src/explain/scale-rules.js";
import type { View } from "../view.js";

/** A way to compute scales that is not the right one. */
export interface ScaleSuspect {
  /** The mistake, in words. */
  readonly words: string;
  /** The scale of a block; undefined if the mistake cannot happen in this tensor. */
  readonly of: (view: View, block: number) => RuleResult | undefined;
  /** Whether scales are right until they are stored, so that codes are right as well. */
  readonly isStorage?: true;
}
