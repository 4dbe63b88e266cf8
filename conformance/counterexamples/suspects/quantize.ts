/** Names what is wrong with a quantizer: scales and codes are explained apart, so that two mistakes are two names. */
import type { RuleResult } from "../../../src/explain/scale-rules.js";
import { blockFormat } from "../../../src/formats/block.js";
import { factsOf } from "../../../src/formats/derive.js";
import { DIRECTIONS, type Direction } from "../../../src/tensor/quantized.js";
import type { QuantizeCase } from "../../operations/quantize/quantize.js";
import { differenceOf } from "../../values/difference.js";
import { type Coder, coders, type Scaler, scalers } from "./codes.js";
import type { ScaleSuspect } from "./scale-suspect.js";
import { scaleSuspects } from "./scales.js";
import type { Evidence } from "./suspect.js";
import { commonTraits, type Verdict } from "./traits.js";
import { View } from "./view.js";

/** A copy as the subject gave it. */
interface Given {
  readonly view: View;
  readonly scales: ArrayLike<number>;
  readonly codes: ArrayLike<number>;
}

/** The first copy that differs from the right one. Undefined if the answers have other names or shapes. */
export function wrongDirection({ actual, expected }: Evidence<QuantizeCase>): Direction | undefined {
  return DIRECTIONS.find((direction) =>
    ["data", "scaleInv", "amax"].some((part) => {
      const [ours, right] = [actual[`${direction}.${part}`], expected[`${direction}.${part}`]];
      return ours && right && (ours.data.length !== right.data.length || differenceOf(ours, right));
    }),
  );
}

/** What explains the scales and codes of all evidence in one copy, in words; several where they cannot be told apart. */
export function nameQuantization(
  evidence: readonly Evidence<QuantizeCase>[],
  direction: Direction,
): readonly string[] {
  const given = evidence.flatMap(({ input, actual }): Given[] => {
    const [data, scales] = [actual[`${direction}.data`], actual[`${direction}.scaleInv`]];
    if (!data || !scales || input.noop === 1 || input.part) return [];
    return [{ view: new View(input, direction), scales: scales.codes, codes: data.codes }];
  });
  const [first] = given;
  if (!first) return [];
  const { spec } = first.view;
  if (given.every(({ view, scales }) => sameScales(view.expected, scales)))
    return spec.stochastic
      ? []
      : codesOf(
          given,
          given.map(({ view }) => view.expected),
        );
  const named: string[] = [];
  for (const suspect of scaleSuspects(spec)) {
    const made = allScales(given, suspect.of);
    const words = made && withCodes(given, suspect, made);
    if (words !== undefined) named.push(words);
    if (named.length >= MOST) return named;
  }
  return named.length > 0 ? named : unknownScales(given);
}

/** The mistake in scales, and what is wrong with codes besides. Undefined if codes follow from no such scales. */
function withCodes(
  given: readonly Given[],
  { words, isStorage }: ScaleSuspect,
  made: readonly (readonly RuleResult[])[],
): string | undefined {
  const { stochastic } = (given[0] as Given).view.spec;
  if (stochastic) return words;
  const also = (codes: string): string => (codes === "" ? "" : `; and ${codes}`);
  const before = () =>
    codesOf(
      given,
      given.map(({ view }) => view.expected),
      { allowsRight: true },
    )[0];
  const kept = isStorage ? before() : undefined;
  if (kept !== undefined) return `${words}; the scales were right before they were stored${also(kept)}`;
  const [follow] = codesOf(given, made, { allowsRight: true });
  if (follow !== undefined) return `${words}${also(follow)}`;
  const old = before();
  if (old === undefined) return undefined;
  return `${words}, but elements have the codes of the scales before that: they were not quantized again${also(old)}`;
}

/** How many explanations are named where several fit. */
const MOST = 3;

/** The scales by a suspect, if they are those of all evidence. Undefined if one differs. */
function allScales(
  given: readonly Given[],
  of: (view: View, block: number) => RuleResult | undefined,
): (readonly RuleResult[])[] | undefined {
  const all: RuleResult[][] = [];
  for (const { view, scales } of given) {
    if (view.blocks.length !== scales.length) return undefined;
    const own: RuleResult[] = [];
    for (let block = 0; block < scales.length; block++) {
      const made = of(view, block);
      if (!made || !sameScale(view, made.code, scales[block] as number)) return undefined;
      own.push(made);
    }
    all.push(own);
  }
  return all;
}

function sameScales(expected: readonly RuleResult[], scales: ArrayLike<number>): boolean {
  return expected.length === scales.length && expected.every(({ code }, i) => code === scales[i]);
}

/** NaN is a class in f32. */
function sameScale({ spec }: View, a: number, b: number): boolean {
  if (a === b) return true;
  return blockFormat(spec.quantizer).scale === "f32" && isNaNOf(a) && isNaNOf(b);
}

const isNaNOf = (bits: number): boolean => (bits & 0x7fffffff) > 0x7f800000;

/** What explains the codes under these scales: "" where they are right and may be. */
function codesOf(
  given: readonly Given[],
  scales: readonly (readonly RuleResult[])[],
  { allowsRight = false } = {},
): readonly string[] {
  const { spec } = (given[0] as Given).view;
  const ways = scalers(spec);
  const forms = coders(spec, nanCode(given));
  const [right, own] = [ways[0] as Scaler, forms[0] as Coder];
  const trials: (readonly [Scaler, Coder])[] = [
    [right, own],
    ...forms.slice(1).map((coder) => [right, coder] as const),
    ...ways.slice(1).map((scaler) => [scaler, own] as const),
    ...ways.slice(1).flatMap((scaler) => forms.slice(1).map((coder) => [scaler, coder] as const)),
  ];
  const named: string[] = [];
  for (const [scaler, coder] of trials) {
    const words = [scaler.words, coder.words].filter((each) => each !== "").join("; and ");
    // two mistakes are named only where one does not explain all
    if (scaler !== right && coder !== own && named.length > 0) break;
    if ((words === "" && !allowsRight) || !fits(given, scales, scaler, coder)) continue;
    named.push(words);
    if (words === "" || named.length >= MOST) break;
  }
  return named;
}

function fits(
  given: readonly Given[],
  scales: readonly (readonly RuleResult[])[],
  scaler: Scaler,
  coder: Coder,
): boolean {
  return given.every(({ view, codes }, i) => {
    const { source, scaleOf, codeOf, values } = view;
    const { rows, columns } = source;
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++) {
        const at = row * columns + column;
        const scale = scales[i]?.[scaleOf[at] as number];
        if (!scale) return false;
        const code = coder.of(scaler.of(source.value(row, column), scale, values.dtype));
        if (code !== codes[codeOf[at] as number]) return false;
      }
    return true;
  });
}

/** The code that all NaN inputs have, unless it is the right one. */
function nanCode(given: readonly Given[]): number | undefined {
  const found = new Set<number>();
  for (const { view, codes } of given)
    for (let at = 0; at < view.scaleOf.length; at++)
      if (Number.isNaN(view.source.value(Math.floor(at / view.source.columns), at % view.source.columns)))
        found.add(codes[view.codeOf[at] as number] as number);
  const [only, second] = found;
  if (only === undefined || second !== undefined) return undefined;
  const { spec } = (given[0] as Given).view;
  return only < 2 ** factsOf(spec.format).bits ? only : undefined;
}

/** Scales that no suspect explains: what the wrong blocks have in common, and whether codes follow from the stored scales. */
function unknownScales(given: readonly Given[]): readonly string[] {
  const own = verdicts(given, (view, block) => view.expected[block]);
  const count = (all: readonly Verdict[]) => all.filter(({ wrong }) => wrong).length;
  const stored = given.map(({ view, scales }) =>
    Array.from(scales, (code, block) => view.resultOf(code, block)),
  );
  const [codes] = (given[0] as Given).view.spec.stochastic
    ? []
    : codesOf(given, stored, { allowsRight: true });
  const follow =
    codes === undefined
      ? "; codes do not follow from the stored scales"
      : codes === ""
        ? "; codes follow from the stored scales"
        : `; ${codes}`;
  // a second mistake may hide the first one: the suspect that explains most of the wrong scales, and where it does not
  const [nearest] = scaleSuspects((given[0] as Given).view.spec)
    .map((suspect) => ({ suspect, rest: verdicts(given, suspect.of) }))
    .sort((a, b) => count(a.rest) - count(b.rest));
  if (nearest && count(nearest.rest) * 4 < count(own))
    return [
      `nearly: ${nearest.suspect.words}; scales differ from that ${commonTraits(nearest.rest)}${follow}`,
    ];
  return [`scales are wrong ${commonTraits(own)}${follow}`];
}

/** Which stored scales differ from those of a suspect. */
function verdicts(given: readonly Given[], of: ScaleSuspect["of"]): readonly Verdict[] {
  return given.flatMap(({ view, scales }) =>
    Array.from(scales, (code, block) => {
      const made = of(view, block);
      return { view, block, wrong: !made || !sameScale(view, code, made.code) };
    }),
  );
}
