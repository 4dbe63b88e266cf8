/** Guesses which other rule produced a wrong code. */

import { blockFormat } from "../formats/block.js";
import { factsOf, valueOfCode } from "../formats/derive.js";
import { SCALE_RULES, type ScaleRule } from "../formats/scale-rules.js";
import type { TensorValues } from "./blocks.js";
import { type QuantizeContext, QuantizeExplainer, type QuantizeExplanation } from "./quantize.js";
import { type RoundingExplanation, roundTo } from "./rounding.js";
import { codeText, numberText } from "./text.js";

/** A code from a kernel and the scale of its block. */
export interface GivenElement {
  readonly code: number;
  /** The stored bits of the scale; absent if unknown. */
  readonly scale?: number;
}

/** The roundings to try on a wrong code, by the name of the suspected mistake. */
const ROUNDINGS = {
  "half-away rounding": "tiesToAway",
  "ties toward zero": "towardZero",
  "rounding toward positive": "towardPositive",
  "rounding toward negative": "towardNegative",
} as const;

/** Explains elements whose codes differ from the reference. */
export class Suspicions {
  readonly #explainer: QuantizeExplainer;

  constructor(
    private readonly values: TensorValues,
    private readonly explained: {
      readonly spec: QuantizeExplanation["spec"];
      readonly context: QuantizeContext;
    },
  ) {
    this.#explainer = new QuantizeExplainer(values, explained.spec, explained.context);
  }

  /** Whether the element is an exact tie between these neighbouring codes. */
  isTie(row: number, column: number, a: number, b: number): boolean {
    const { tie, lower, upper } = this.#explainer.round(
      this.#explainer.scaledValue(row, column),
      row,
      column,
    );
    return tie && [lower?.code, upper?.code].every((code) => code === a || code === b);
  }

  /**
   * Describes an element in one line: what the reference computes, the code of each side, and the mistake that explains the wrong
   * code.
   */
  describe(row: number, column: number, a: GivenElement, b: GivenElement): string {
    return this.#line(row, column, a, b, true);
  }

  /** Like `describe`, without a guess at the mistake. */
  difference(row: number, column: number, a: GivenElement, b: GivenElement): string {
    return this.#line(row, column, a, b, false);
  }

  #line(row: number, column: number, a: GivenElement, b: GivenElement, guesses: boolean): string {
    const explain = this.#explainer.explain(row, column);
    const isRight = ({ code, scale }: GivenElement) =>
      code === explain.code && (scale === undefined || scale === explain.scale.code);
    const x = `x = ${numberText(explain.input)}`;
    if (isRight(a) === isRight(b)) return `${x}, ${this.#both(explain, a, b)}`;
    const yours = isRight(a) ? b : a;
    if (yours.scale !== undefined && yours.scale !== explain.scale.code)
      return `${x}, ${this.#scaleText(explain, yours.scale, guesses)}`;
    return `${x}, ${this.#codeText(explain, yours.code, guesses)}`;
  }

  #both(explain: QuantizeExplanation, a: GivenElement, b: GivenElement): string {
    const text = ({ code, scale }: GivenElement): string =>
      scale === undefined ? this.#hex(code) : `${this.#hex(code)} under ${this.#scaleHex(scale)}`;
    const reference = text({ code: explain.code, scale: explain.scale.code });
    return `the reference gives ${reference}; A has ${text(a)}, B has ${text(b)}`;
  }

  #hex(code: number): string {
    return codeText(code, factsOf(this.explained.spec.format).bits);
  }

  #scaleHex(code: number): string {
    return codeText(code, blockFormat(this.explained.spec.quantizer).scale === "f32" ? 32 : 8);
  }

  #scaleText({ scale, block, at }: QuantizeExplanation, yours: number, guesses: boolean): string {
    const { spec } = this.explained;
    const amax = block ? `amax ${numberText(block.amax.value)}: ` : "";
    const rules = guesses
      ? blockFormat(spec.quantizer).rules.filter(
          (rule) => rule !== spec.scaleRule && this.#scaleBy(rule, at) === yours,
        )
      : [];
    const guess = rules.length > 0 ? `; ${rules.join(" or ")}?` : this.#distance(scale.code, yours);
    return `${amax}${spec.scaleRule} gives the scale ${this.#scaleHex(scale.code)}, yours ${this.#scaleHex(yours)}${guess}`;
  }

  /** The scale of the block by another rule. */
  #scaleBy(
    scaleRule: (typeof this.explained.spec)["scaleRule"],
    [row, column]: QuantizeExplanation["at"],
  ): number {
    const { powers, scalings }: ScaleRule = SCALE_RULES[scaleRule];
    const { spec, context } = this.explained;
    const other = {
      ...spec,
      scaleRule,
      pow2Scales: powers === "asked" && spec.pow2Scales,
      elementScaling: scalings[0] ?? spec.elementScaling,
      rowScaled: false,
    };
    return new QuantizeExplainer(this.values, other, context).explain(row, column).scale.code;
  }

  #distance(reference: number, yours: number): string {
    return blockFormat(this.explained.spec.quantizer).scale === "f32"
      ? ""
      : `, ${Math.abs(reference - yours)} code${Math.abs(reference - yours) === 1 ? "" : "s"} away`;
  }

  #codeText({ rounding, code, at }: QuantizeExplanation, yours: number, guesses: boolean): string {
    const { lower, upper, tie, fraction } = rounding;
    const pair = lower && upper ? `${this.#hex(lower.code)} and ${this.#side(upper)}` : "";
    const where = tie
      ? `exact tie between ${pair}: ${rounding.rounding === "tiesToEven" ? "even" : rounding.rounding} gives`
      : fraction > 0
        ? `at fraction ${Number(fraction.toPrecision(4))} between ${pair}: rounds to`
        : `${rounding.decision}: gives`;
    const guess = guesses ? this.#guess(rounding, yours, at) : undefined;
    return `${where} ${this.#hex(code)}, yours ${this.#hex(yours)}${guess === undefined ? "" : `; ${guess}?`}`;
  }

  #side({ code, value }: NonNullable<RoundingExplanation["upper"]>): string {
    return code === undefined ? numberText(value) : this.#hex(code);
  }

  #guess(
    rounding: RoundingExplanation,
    yours: number,
    [row, column]: QuantizeExplanation["at"],
  ): string | undefined {
    const { format } = rounding;
    const { minNormal, maxCode } = factsOf(format);
    const [value, expected] = [valueOfCode(format, yours), rounding.result];
    if (value === 0 && expected === 0)
      return Object.is(expected, -0) ? "minus zero lost" : "the sign of zero";
    if (Number.isNaN(expected)) return Number.isNaN(value) ? "the sign of NaN" : "NaN lost";
    if (Number.isNaN(value) || Math.abs(value) === Infinity) return this.#specialGuess(rounding, yours);
    if (value === 0 && Math.abs(expected) < minNormal) return "subnormals flushed to zero";
    const match = Object.entries(ROUNDINGS).find(
      ([, mode]) => roundTo(rounding.value, { ...rounding, rounding: mode }).code === yours,
    );
    if (match) return match[0] === "ties toward zero" && !rounding.tie ? "truncation" : match[0];
    const scaling = this.#scalingOf(yours, row, column);
    if (scaling !== undefined) return `${scaling} instead of ${this.explained.spec.elementScaling}`;
    return value === -expected ? "the sign" : yours > maxCode && expected >= 0 ? "the sign" : undefined;
  }

  /** Guesses why a number became NaN or infinity: the overflow policy, or 0 / 0. */
  #specialGuess({ value, ...choice }: RoundingExplanation, yours: number): string | undefined {
    if (value === 0) return "0 / 0";
    const { code } = roundTo(value, { ...choice, overflow: "nonfinite" });
    return code === yours ? "overflow that does not saturate" : undefined;
  }

  /** Finds another element scaling that gives this code. */
  #scalingOf(yours: number, row: number, column: number): string | undefined {
    const { spec, context } = this.explained;
    const { scalings }: ScaleRule = SCALE_RULES[spec.scaleRule];
    return scalings.find((elementScaling) => {
      if (elementScaling === spec.elementScaling) return false;
      const other = new QuantizeExplainer(this.values, { ...spec, elementScaling }, context);
      return other.explain(row, column).code === yours;
    });
  }
}
