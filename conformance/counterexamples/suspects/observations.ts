/**
 * Facts about a wrong copy that no known mistake explains: how much is wrong, where, and how much of it a known mistake explains.
 */
import type { Direction } from "../../../src/tensor/quantized.js";
import { codeWays } from "./codes.js";
import { type CopyEvidence, isSameScale, isWrong } from "./copies.js";
import type { ScaleSuspect } from "./scales/scale-suspect.js";
import { scaleSuspects } from "./scales/scales.js";
import { commonTraits, type Verdict } from "./traits.js";

/** Facts about a copy. None is a cause. */
export function observations(copies: readonly CopyEvidence[], direction: Direction): readonly string[] {
  const wrong = (part: Parameters<typeof isWrong>[2]) =>
    copies.filter(({ evidence }) => isWrong(evidence, direction, part));
  const ofAmax = wrong("amax").length;
  const seen: string[] = [];
  if (wrong("scaleInv").length > 0) seen.push(...ofScales(copies));
  else if (wrong("data").length > 0) seen.push(`${ofCodes(copies)}; scales are right`);
  if (ofAmax > 0) {
    const rest = seen.length > 0 ? "" : "; codes and scales are right";
    seen.push(`the stored amax is wrong in ${ofAmax} of ${copies.length} inputs${rest}`);
  }
  return seen;
}

function ofCodes(copies: readonly CopyEvidence[]): string {
  let [different, all] = [0, 0];
  for (const { view, codes, evidence } of copies) {
    const right = evidence.expected[`${view.direction}.data`]?.codes ?? [];
    for (const at of view.codeOf) {
      all++;
      if (codes[at] !== right[at]) different++;
    }
  }
  return `${different} of ${all} codes are wrong`;
}

/** The blocks with wrong scales, whether codes agree with the stored scales, and the suspect that explains most scales. */
function ofScales(copies: readonly CopyEvidence[]): readonly string[] {
  const { spec } = (copies[0] as CopyEvidence).view;
  const verdictsOfSpec = verdicts(copies, (view, block) => view.expected[block]);
  const stored = copies.map(({ view, scales }) =>
    Array.from(scales, (code, block) => view.resultOf(code, block)),
  );
  const hasWrongCodes = copies.some(({ view, evidence }) => isWrong(evidence, view.direction, "data"));
  const isOwn = hasWrongCodes && codeWays(copies, stored)[0]?.words === "";
  const follow = hasWrongCodes
    ? `; codes ${isOwn ? "follow" : "do not follow"} from the stored scales`
    : "; codes are right";
  const wrong = countOf(verdictsOfSpec);
  // a second mistake may hide the first one, so the suspect that explains most wrong scales is named
  const [nearest] = scaleSuspects(spec, copies)
    .map((suspect) => ({ suspect, rest: countOf(verdicts(copies, suspect.of)) }))
    .sort((a, b) => a.rest - b.rest);
  const isNear = nearest && nearest.rest * 4 < wrong;
  return [
    `scales are wrong ${commonTraits(verdictsOfSpec)}${follow}`,
    ...(isNear
      ? [
          `with this, ${nearest.rest} of ${verdictsOfSpec.length} scales would be wrong, not ${wrong}: ${nearest.suspect.words}`,
        ]
      : []),
  ];
}

const countOf = (all: readonly Verdict[]): number => all.filter(({ wrong }) => wrong).length;

/** Compares the stored scales with a suspect's. */
function verdicts(copies: readonly CopyEvidence[], of: ScaleSuspect["of"]): readonly Verdict[] {
  return copies.flatMap(({ view, scales }) =>
    Array.from(scales, (code, block) => {
      const predicted = of(view, block);
      return { view, block, wrong: !predicted || !isSameScale(view, code, predicted.code) };
    }),
  );
}
