/** Finds the ways to scale and encode that explain all codes of some answers, for known scales. */
import type { RuleResult } from "../../../src/explain/scale-rules.js";
import { factsOf } from "../../../src/formats/derive.js";
import type { CodedElement, Coder } from "./coder.js";
import { coders } from "./coders.js";
import type { CopyEvidence } from "./copies.js";
import { type Scaler, scalers } from "./scales/scalers.js";
import type { View } from "./view.js";

/** A way to scale and encode elements. */
export interface CodeWay {
  /** The mistake; "" if there is none. */
  readonly words: string;
  readonly scaler: Scaler;
  readonly coder: Coder;
}

/** The maximum number of explanations to name. */
export const MAX_NAMES = 3;

/**
 * The explanations of the codes under these scales: the correct way if it fits, else every mistake that fits, and pairs of
 * mistakes only if no single one does.
 */
export function codeWays(
  copies: readonly CopyEvidence[],
  scales: readonly (readonly RuleResult[])[],
): readonly CodeWay[] {
  const { spec } = (copies[0] as CopyEvidence).view;
  const allScalers = scalers(spec);
  const allCoders = coders(spec, nanCode(copies));
  const [scaler, coder] = [allScalers[0] as Scaler, allCoders[0] as Coder];
  const isCode = (i: number, at: number, way: Omit<CodeWay, "words">): boolean => {
    const { view, codes } = copies[i] as CopyEvidence;
    return codeBy(view, at, scales[i] as readonly RuleResult[], way) === codes[view.codeOf[at] as number];
  };
  const wrong = firstWrong(copies, (i, at) => isCode(i, at, { scaler, coder }));
  if (wrong.length === 0) return [{ words: "", scaler, coder }];
  // a wrong way usually fails on the elements where the correct way fails
  const isFit = (way: Omit<CodeWay, "words">): boolean =>
    wrong.every(([i, at]) => isCode(i, at, way)) &&
    copies.every(({ view }, i) => {
      for (let at = 0; at < view.codeOf.length; at++) if (!isCode(i, at, way)) return false;
      return true;
    });
  const single = [
    ...allCoders.slice(1).map((each) => ({ words: each.words, scaler, coder: each })),
    ...allScalers.slice(1).map((each) => ({ words: each.words, scaler: each, coder })),
  ];
  const match = firstMatches(single, isFit);
  if (match.length > 0) return match;
  const pairs = allScalers
    .slice(1)
    .flatMap((one) =>
      allCoders
        .slice(1)
        .map((other) => ({ words: `${one.words}; and ${other.words}`, scaler: one, coder: other })),
    );
  return firstMatches(pairs, isFit);
}

/** The number of elements to test before all others. */
const MAX_WRONG = 64;

/** The first elements, by copy and index, for which `isRight` is false. */
function firstWrong(
  copies: readonly CopyEvidence[],
  isRight: (copy: number, at: number) => boolean,
): readonly (readonly [copy: number, at: number])[] {
  const pairs: [number, number][] = [];
  for (const [i, { view }] of copies.entries())
    for (let at = 0; at < view.codeOf.length && pairs.length < MAX_WRONG; at++)
      if (!isRight(i, at)) pairs.push([i, at]);
  return pairs;
}

/** The first elements for which `isFit` is true, at most `MAX_NAMES`. */
function firstMatches<T>(all: readonly T[], isFit: (each: T) => boolean): readonly T[] {
  const matches: T[] = [];
  for (const each of all) {
    if (isFit(each)) matches.push(each);
    if (matches.length === MAX_NAMES) break;
  }
  return matches;
}

/** The code of an element; -1 if its block has no scale. */
export function codeBy(
  view: View,
  at: number,
  scales: readonly RuleResult[],
  { scaler, coder }: Omit<CodeWay, "words">,
): number {
  const scale = scales[view.scaleOf[at] as number];
  if (!scale) return -1;
  const element = view.elements[at] as CodedElement;
  return coder.of(scaler.of(element.x, scale, view.values.dtype), element);
}

/** The code of all NaN inputs. Undefined if there are several codes, or no NaN inputs. */
function nanCode(copies: readonly CopyEvidence[]): number | undefined {
  const nanCodes = new Set<number>();
  for (const { view, codes } of copies)
    for (const [at, { x }] of view.elements.entries())
      if (Number.isNaN(x)) nanCodes.add(codes[view.codeOf[at] as number] as number);
  const [only, second] = nanCodes;
  if (only === undefined || second !== undefined) return undefined;
  const { spec } = (copies[0] as CopyEvidence).view;
  return only < 2 ** factsOf(spec.format).bits ? only : undefined;
}
