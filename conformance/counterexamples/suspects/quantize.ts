/** Names a quantizer's mistakes. Scales, codes and amaxes are explained separately, so two mistakes get two names. */
import type { RuleResult } from "../../../src/explain/scale-rules.js";
import type { Direction } from "../../../src/tensor/quantized.js";
import type { Answer } from "../../operations/operation.js";
import type { QuantizeCase } from "../../operations/quantize/quantize.js";
import { amaxSuspects } from "./amaxes.js";
import { type CodeWay, codeBy, codeWays, MAX_NAMES } from "./codes.js";
import {
  amaxName,
  type CopyEvidence,
  copyOf,
  isSameScale,
  isWrong,
  scalesBy,
  wrongDirections,
} from "./copies.js";
import { mapCodes } from "./inputs.js";
import { observations } from "./observations.js";
import type { ScaleSuspect } from "./scales/scale-suspect.js";
import { scaleSuspects } from "./scales/scales.js";
import type { Evidence, Explanation, Naming } from "./suspect.js";

type Named = Explanation<QuantizeCase>;
type Asked = Parameters<Named["answer"]>[0];

/** The explanations of the differing copies, or facts if there is no explanation. */
export function nameQuantization(evidence: readonly Evidence<QuantizeCase>[]): Naming<QuantizeCase> {
  const directions = [...new Set(evidence.flatMap(wrongDirections))];
  const each = directions.map((direction) => nameCopy(evidence, direction));
  const [first, second] = each;
  if (!first) return { mistakes: [], observations: [] };
  const seen = each.flatMap(({ observations: facts }) => facts);
  if (!second) return first;
  // a mistake that explains both copies is one mistake; otherwise each copy has its own
  const both = first.mistakes.flatMap((one) =>
    second.mistakes
      .filter(({ words }) => words === one.words)
      .map((other) => together(one.words, one, other)),
  );
  if (both.length > 0) return { mistakes: both, observations: [] };
  const apart = first.mistakes.flatMap((one) =>
    second.mistakes.map((other) =>
      together(`${directions[0]}: ${one.words}; ${directions[1]}: ${other.words}`, one, other),
    ),
  );
  const partly = each.flatMap(({ mistakes }, i) =>
    mistakes.map(({ words }) => `in the ${directions[i]} copy alone: ${words}`),
  );
  return { mistakes: apart.slice(0, MAX_NAMES), observations: apart.length > 0 ? [] : [...partly, ...seen] };
}

/** Combines two mistakes of one kernel. */
function together(words: string, one: Named, other: Named): Named {
  return {
    words,
    async answer({ input, expected }) {
      const first = await one.answer({ input, expected });
      return first && other.answer({ input, expected: first });
    },
  };
}

/** The explanations of one copy. */
function nameCopy(evidence: readonly Evidence<QuantizeCase>[], direction: Direction): Naming<QuantizeCase> {
  const copies = evidence.flatMap((each) => copyOf(each, direction) ?? []);
  if (copies.length === 0) return { mistakes: [], observations: [] };
  const wrong = (part: Parameters<typeof isWrong>[2]) =>
    copies.some(({ evidence: copyEvidence }) => isWrong(copyEvidence, direction, part));
  const ofAmax = wrong("amax") ? amaxExplanations(copies, direction) : undefined;
  const ofBlocks = wrong("data") || wrong("scaleInv") ? blockExplanations(copies, direction) : undefined;
  const seen = () => observations(copies, direction);
  if (!ofAmax || !ofBlocks) {
    const mistakes = ofAmax ?? ofBlocks ?? [];
    return { mistakes, observations: mistakes.length > 0 ? [] : seen() };
  }
  const both = ofBlocks.flatMap((one) =>
    ofAmax.map((other) => together(`${one.words}; and ${other.words}`, one, other)),
  );
  if (both.length > 0) return { mistakes: both.slice(0, MAX_NAMES), observations: [] };
  const partly = [
    ...ofBlocks.map(({ words }) => `codes and scales, but not the stored amax: ${words}`),
    ...ofAmax.map(({ words }) => `the stored amax, but not codes and scales: ${words}`),
  ];
  return { mistakes: [], observations: [...partly, ...seen()] };
}

function amaxExplanations(copies: readonly CopyEvidence[], direction: Direction): readonly Named[] {
  const name = amaxName((copies[0] as CopyEvidence).evidence.expected, direction);
  return amaxSuspects((copies[0] as CopyEvidence).view.spec)
    .filter(({ of }) =>
      copies.every(({ view, evidence: { actual, expected } }) => {
        const [ours, right] = [actual[name]?.codes, expected[name]];
        if (!ours || !right) return true;
        const bits = of(view, right);
        return (
          bits !== undefined && right.codes.every((_, i) => isSameF32(bits[i] as number, ours[i] as number))
        );
      }),
    )
    .slice(0, MAX_NAMES)
    .map(({ words, of }) => ({
      words,
      answer(query) {
        const right = query.expected[name];
        const copy = right && copyOf({ ...query, actual: query.expected }, direction);
        const bits = copy && of(copy.view, right);
        return right && bits && { ...query.expected, [name]: mapCodes(right, (_, i) => bits[i] as number) };
      },
    }));
}

const isSameF32 = (a: number, b: number): boolean =>
  a === b || [a, b].every((bits) => (bits & 0x7fffffff) > 0x7f800000);

/** The explanations of codes and scales. */
function blockExplanations(copies: readonly CopyEvidence[], direction: Direction): readonly Named[] {
  const { spec } = (copies[0] as CopyEvidence).view;
  if (
    copies.every(({ view, scales }) =>
      view.expected.every(({ code }, i) => isSameScale(view, code, scales[i] as number)),
    )
  )
    return codeWays(
      copies,
      copies.map(({ view }) => view.expected),
    )
      .filter(({ words }) => words !== "")
      .map((way) => ({
        words: way.words,
        answer: (query) => blocksBy(query, direction, { way, stored: RIGHT, used: RIGHT }),
      }));
  const named: Named[] = [];
  for (const suspect of scaleSuspects(spec, copies)) {
    const stored = storedBy(copies, suspect);
    const match = stored && withCodes(copies, suspect, stored);
    if (!match) continue;
    const used = match.isOwn ? suspect.of : RIGHT;
    named.push({
      words: match.words,
      answer: (query) => blocksBy(query, direction, { way: match.way, stored: suspect.of, used }),
    });
    if (named.length === MAX_NAMES) break;
  }
  return named;
}

const RIGHT: ScaleSuspect["of"] = (view, block) => view.expected[block];

/** A suspect's scales, if they equal the stored ones in all copies. */
function storedBy(
  copies: readonly CopyEvidence[],
  { of }: ScaleSuspect,
): readonly (readonly RuleResult[])[] | undefined {
  const all: (readonly RuleResult[])[] = [];
  for (const { view, scales } of copies) {
    const blockScales = scalesBy(view, (copyView, block) => {
      const result = of(copyView, block);
      return result && isSameScale(view, result.code, scales[block] as number) ? result : undefined;
    });
    if (!blockScales) return undefined;
    all.push(blockScales);
  }
  return all;
}

/** A mistake in scales together with the explanation of the codes. `isOwn`: elements are scaled by the wrong scales. */
interface WithCodes {
  readonly words: string;
  readonly way: CodeWay;
  readonly isOwn: boolean;
}

/** Explains the codes under a suspect's scales. Undefined if they agree neither with these nor with the correct ones. */
function withCodes(
  copies: readonly CopyEvidence[],
  { words, isStorage }: ScaleSuspect,
  stored: readonly (readonly RuleResult[])[],
): WithCodes | undefined {
  const also = (way: CodeWay): string => (way.words === "" ? "" : `; and ${way.words}`);
  const [before] = isStorage ? rightWays(copies) : [];
  if (before)
    return {
      words: `${words}; the scales were right before they were stored${also(before)}`,
      way: before,
      isOwn: false,
    };
  const [follow] = codeWays(copies, stored);
  if (follow) return { words: `${words}${also(follow)}`, way: follow, isOwn: true };
  const [old] = rightWays(copies);
  return (
    old && {
      words: `${words}, but elements have the codes of the scales before that: they were not quantized again${also(old)}`,
      way: old,
      isOwn: false,
    }
  );
}

/** Explains the codes under the correct scales. */
function rightWays(copies: readonly CopyEvidence[]): readonly CodeWay[] {
  return codeWays(
    copies,
    copies.map(({ view }) => view.expected),
  );
}

interface Blocks {
  readonly way: CodeWay;
  /** The stored scales, and the scales that elements are divided by. */
  readonly stored: ScaleSuspect["of"];
  readonly used: ScaleSuspect["of"];
}

/** The answer of a kernel with these scales and codes in one copy. */
function blocksBy(
  { input, expected }: Asked,
  direction: Direction,
  { way, stored, used }: Blocks,
): Answer | undefined {
  const copy = copyOf({ input, expected, actual: expected }, direction);
  const [data, scaleInv] = [expected[`${direction}.data`], expected[`${direction}.scaleInv`]];
  if (!copy || !data || !scaleInv) return undefined;
  const { view } = copy;
  const [scales, usedScales] = [scalesBy(view, stored), scalesBy(view, used)];
  if (!scales || !usedScales) return undefined;
  const codes = Array.from(data.codes);
  for (let at = 0; at < view.codeOf.length; at++)
    codes[view.codeOf[at] as number] = codeBy(view, at, usedScales, way);
  return {
    ...expected,
    [`${direction}.data`]: mapCodes(data, (_, i) => codes[i] as number),
    [`${direction}.scaleInv`]: mapCodes(scaleInv, (_, i) => (scales[i] as RuleResult).code),
  };
}
