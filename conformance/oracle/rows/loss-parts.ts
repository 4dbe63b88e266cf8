/** Cross-entropy of a row whose classes are divided among ranks: the partial results of each rank's columns. */
import { exp } from "../core/math.js";
import { computeLoss } from "./loss.js";
import { laneSum } from "./norm.js";

const f = Math.fround;

/** The maximum of some columns, NaN ignored. */
export function maximumOf(logits: readonly number[]): number {
  return f(Math.max(...logits.filter((x) => !Number.isNaN(x))) + 0);
}

/**
 * The partial sums over some columns, the first of which is class `first`: of exp(x - maximum) and of x - maximum, and the
 * target's x - maximum.
 */
export function sumsOf(
  logits: readonly number[],
  { target, first, maximum }: { readonly target: number; readonly first: number; readonly maximum: number },
): readonly [total: number, ofTarget: number, distance: number] {
  const exponentials = logits.map((x) => f(x - maximum));
  const ofTarget = target < first ? undefined : exponentials[target - first];
  return [laneSum(exponentials.map(exp)), ofTarget ?? -0, laneSum(exponentials)];
}

/** The loss of a row from its total sums. */
export function lossOfSums(
  [total, ofTarget, distance]: readonly number[],
  target: number,
  {
    classes,
    smoothing,
    ignore,
  }: { readonly classes: number; readonly smoothing: number; readonly ignore: number },
): number {
  if (target === ignore) return 0;
  if (target < 0 || target >= classes) return Number.NaN;
  const terms = {
    total: total as number,
    ofTarget: ofTarget as number,
    distance: distance as number,
    classes,
  };
  return computeLoss(terms, f(smoothing));
}
