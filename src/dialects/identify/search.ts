/**
 * Searches for the rules that produced codes and scales: tries every rule on every reading and stops at the first contradiction.
 */
import { BLOCK_FORMAT_NAMES, blockFormat, blocksIn, scaleSpan } from "../../formats/block.js";
import type { BlockScaleFormat } from "../../formats/datapath.js";
import { factsOf } from "../../formats/derive.js";
import {
  ELEMENT_SCALINGS,
  type ElementScaling,
  type ElementScalingName,
  tiesOf,
} from "../../formats/element-scalings.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { SCALE_RULES, scalingsOf, tensorScaleRole } from "../../formats/scale-rules.js";
import { castTo } from "../../ops/cast/cast.js";
import { tensor } from "../../ops/create.js";
import type { QuantizeSpec } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { scaleAt, scaleValue } from "../plain.js";
import {
  becomes,
  ELEMENT_OVERFLOWS,
  ELEMENT_ROUNDINGS,
  ELEMENT_ZEROS,
  type ElementRounding,
  type ElementRule,
} from "./elements.js";
import {
  amaxesOf,
  type MatrixKind,
  OTHER_RULES,
  quantizedBy,
  type ScaleSettings,
  scaleSettings,
} from "./expected.js";
import { type CodeReading, type ScaleReading, scaleReadings } from "./readings.js";

/** The matrix that was quantized. */
export interface Input {
  readonly x: Tensor<WideDType>;
  readonly values: Float32Array;
  readonly size: readonly [rows: number, columns: number];
  /** The global scale, or the row amaxes; undefined if the caller has neither. */
  readonly tensorScale?: Float32Array | undefined;
}

/**
 * How the tensor scale is stored: as the rule's number, as its reciprocal, or, for rules that store an amax, as the decode scale
 * amax / 2688 or the encode scale 2688 / amax.
 */
export type TensorScaleForm =
  | "as the rule stores it"
  | "reciprocal"
  | "decode scale"
  | "encode scale"
  | "not given";

/** The comparison of one rule with one reading of the scales. */
export interface ScaleTrial {
  readonly shape: MatrixKind;
  readonly reading: ScaleReading;
  /** The name of a rule of the tables or of an `OtherRule`. */
  readonly rule: string;
  readonly settings?: ScaleSettings;
  readonly formula: string;
  /** The scales by the rule. */
  readonly expected: Uint8Array | Float32Array;
  /**
   * The numbers that the rule stores in addition to the block scales: one tensor scale or amax, or with `rowScaled` one amax for
   * each row.
   */
  readonly tensorNumbers?: Float32Array;
  readonly tensorScale: TensorScaleForm | undefined;
  readonly different: number;
  /** The index of the first scale that differs. */
  readonly first?: number;
}

/** One way in which elements may have been rounded to codes. */
export interface ElementTrial extends ElementRule {
  /** The rounded expression. */
  readonly formula: string;
  /** The element scaling of the tables, if one matches. */
  readonly scaling?: ElementScalingName;
  readonly spec?: QuantizeSpec;
}

/** A reading in which a rule explains every bit. */
export interface Found {
  readonly scale: ScaleTrial;
  readonly codes: CodeReading;
  readonly elements: readonly ElementTrial[];
}

/** Counts differing scales. Two NaN are equal. */
function mismatches(
  reading: ScaleReading,
  expected: Uint8Array | Float32Array,
): { different: number; first?: number } {
  const isReciprocal = reading.form === "reciprocal" && expected instanceof Float32Array;
  let [different, first] = [0, -1];
  for (let i = 0; i < expected.length; i++) {
    const number = expected[i] as number;
    if (Object.is(reading.scales[i], isReciprocal ? Math.fround(1 / number) : number)) continue;
    if (different++ === 0) first = i;
  }
  return different === 0 ? { different } : { different, first };
}

/**
 * Computes the stored number of each form from the rule's number. `largest` is the largest product of a code and a scale, which
 * only amaxes need.
 */
const TENSOR_FORMS: Readonly<
  Record<Exclude<TensorScaleForm, "not given">, (number: number, largest: number) => number>
> = {
  "as the rule stores it": (number) => number,
  reciprocal: (number) => Math.fround(1 / number),
  "decode scale": (number, largest) => Math.fround(number / largest),
  "encode scale": (number, largest) => Math.fround(largest / number),
};
const ANY_FORMS = ["as the rule stores it", "reciprocal"] as const;
const AMAX_FORMS = [...ANY_FORMS, "decode scale", "encode scale"] as const;

/** The largest NVFP4 value under the settings; amax / largest is the decode scale. */
function largestOf({ e4m3Max = 448 }: ScaleSettings): number {
  return 6 * e4m3Max;
}

/**
 * The form in which the stored tensor scale, or the row amaxes, agree with a rule; undefined if none does. The tensor scale may
 * be repeated for each row.
 */
function tensorForm(
  settings: ScaleSettings,
  numbers: Float32Array,
  stored: Float32Array | undefined,
): TensorScaleForm | undefined {
  if (stored === undefined) return "not given";
  if (numbers.length !== 1 && numbers.length !== stored.length) return undefined;
  const forms = tensorScaleRole(settings.scaleRule) === "amax" ? AMAX_FORMS : ANY_FORMS;
  const largest = largestOf(settings);
  return forms.find((form) =>
    stored.every((each, i) =>
      Object.is(TENSOR_FORMS[form](numbers[numbers.length === 1 ? 0 : i] as number, largest), each),
    ),
  );
}

/** Compares every rule with every reading of the scales that fits one of these formats. */
export function scaleTrials(
  input: Input,
  scales: Tensor,
  formats: readonly ScalarFormat[],
): readonly ScaleTrial[] {
  const trials: ScaleTrial[] = [];
  for (const quantizer of BLOCK_FORMAT_NAMES) {
    const row = blockFormat(quantizer);
    if (row.scaleSource === "given") continue;
    const elementFormats = formats.filter((format) => row.elements.includes(format));
    for (const tile of row.tiles) {
      const readings =
        elementFormats.length === 0 || input.size[1] % row.multiple !== 0
          ? []
          : scaleReadings(scales, quantizer, tile, input.size);
      if (readings.length === 0) continue;
      for (const format of elementFormats)
        trials.push(...trialsOf(input, { quantizer, format, tile }, readings));
    }
  }
  return trials;
}

function trialsOf(input: Input, shape: MatrixKind, readings: readonly ScaleReading[]): readonly ScaleTrial[] {
  const { scale: type } = blockFormat(shape.quantizer);
  const ofTables = scaleSettings(shape).flatMap((settings) => {
    const { plain } = quantizedBy(input.x, shape, settings);
    const { scales: expected, lineAmaxes } = plain;
    const tensorNumbers = plain.whole === undefined ? lineAmaxes : Float32Array.of(plain.whole);
    const { formula } = SCALE_RULES[settings.scaleRule];
    const form =
      tensorNumbers === undefined ? "not given" : tensorForm(settings, tensorNumbers, input.tensorScale);
    const trial = { shape, rule: settings.scaleRule, settings, formula, expected, tensorScale: form };
    return [tensorNumbers === undefined ? trial : { ...trial, tensorNumbers }];
  });
  const amaxes = amaxesOf(input.values, shape, input.size);
  const others = OTHER_RULES[type].map(({ name, formula, of }) => {
    const scales = Array.from(amaxes, (amax) => of(amax, shape.format));
    const expected = type === "f32" ? Float32Array.from(scales) : Uint8Array.from(scales);
    return { shape, rule: name, formula, expected, tensorScale: "not given" as const };
  });
  return readings.flatMap((reading) =>
    [...ofTables, ...others].map((trial) => ({ ...trial, reading, ...mismatches(reading, trial.expected) })),
  );
}

/** The index of the first code that differs, or -1. */
export function firstDifference(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return i;
  return -1;
}

/** The rounding of an element scaling. */
function ruleOf(scaling: ElementScalingName): ElementRule {
  const { bits }: ElementScaling = ELEMENT_SCALINGS[scaling];
  const zero = (["addsZero", "plusZero", "minusZero"] as const).find((bit) => bits.includes(bit)) ?? "kept";
  return { rounding: tiesOf(scaling), zero, overflow: "saturate" };
}

/** The ways of rounding that explain these codes under a rule's scales: those of the tables, or others if no table entry fits. */
export function elementTrials(input: Input, scale: ScaleTrial, codes: CodeReading): readonly ElementTrial[] {
  const { settings } = scale;
  const scalings = settings ? scalingsOf(settings.scaleRule, scale.shape.format) : [];
  const fitting = scalings.flatMap((scaling): readonly ElementTrial[] => {
    if (!settings) return [];
    const { plain, spec } = quantizedBy(input.x, scale.shape, settings, scaling);
    if (firstDifference(plain.codes, codes.codes) >= 0) return [];
    return [{ ...ruleOf(scaling), formula: "", scaling, spec }];
  });
  return fitting.length > 0 ? fitting : otherElements(input, scale, codes);
}

/** An expression that divides an element by its scale; a kernel rounds its result to a code. */
interface Product {
  readonly formula: string;
  readonly of: (x: number, scale: number, amax: number, max: number) => number;
}

const { fround } = Math;
const QUOTIENT: Product = { formula: "x / s", of: (x, s) => fround(x / s) };
const BY_RECIPROCAL: Product = { formula: "x * (1 / s)", of: (x, s) => fround(x * fround(1 / s)) };
const PRODUCTS: Readonly<Record<BlockScaleFormat, readonly Product[]>> = {
  e8m0: [QUOTIENT],
  e4m3: [QUOTIENT, BY_RECIPROCAL],
  ue5m3: [QUOTIENT, BY_RECIPROCAL],
  f32: [
    QUOTIENT,
    BY_RECIPROCAL,
    { formula: "x * (max / amax)", of: (x, _, amax, max) => fround(x * fround(max / amax)) },
  ],
};

/** Rounds numbers to the type of the input. */
function roundedAs({ x }: Input, products: Float32Array): Float32Array {
  using _scope = new Scope();
  const rounded = castTo(tensor(x.backend, products), x.dtype);
  return castTo(rounded, "f32").dataSync().slice() as Float32Array;
}

/** The divisor of each block's elements: the block scale combined with the tensor's or row's scale. */
function divisors({ expected, reading, settings, tensorNumbers }: ScaleTrial, columns: number): Float32Array {
  const { scale: type } = blockFormat(reading.quantizer);
  const role = settings && tensorScaleRole(settings.scaleRule);
  const across = blocksIn(columns, scaleSpan(reading)[1]);
  return Float32Array.from(expected, (stored, i) => {
    const scale = scaleValue(type, stored);
    if (!settings || tensorNumbers === undefined || role === undefined) return scale;
    const tensorNumber = tensorNumbers[settings.rowScaled ? Math.floor(i / across) : 0] as number;
    if (role === "divisor") return fround(scale / tensorNumber);
    if (role === "multiplier") return fround(scale * tensorNumber);
    return fround(fround(scale * tensorNumber) * fround(1 / largestOf(settings)));
  });
}

/**
 * The ways of rounding outside the tables that explain these codes, for the first product that has any; the simplest come first.
 * Stochastic rounding is tried last, over all products, because it allows either neighbour.
 */
function otherElements(
  input: Input,
  scale: ScaleTrial,
  { format, codes }: CodeReading,
): readonly ElementTrial[] {
  const { x } = input;
  const productsOf = productsUnder(input, scale, format);
  const types = x.dtype === "f32" ? [false] : [false, true];
  for (const roundings of [CERTAIN, ["stochastic"] as const])
    for (const product of PRODUCTS[blockFormat(scale.shape.quantizer).scale])
      for (const typed of types) {
        const exact = productsOf(product);
        const products = typed ? roundedAs(input, exact) : exact;
        const fitting = rules(roundings).filter(
          (rule) =>
            codes.every((code, i) => fits(format, rule, products[i] as number, code)) &&
            (rule.rounding !== "stochastic" || looksRandom(format, products, codes)),
        );
        const { formula } = product;
        const typedFormula = typed ? `${formula}, rounded to ${x.dtype}` : formula;
        if (fitting.length > 0) return simplest(fitting).map((rule) => ({ ...rule, formula: typedFormula }));
      }
  return [];
}

/** Computes a product for all elements under a rule's scales. */
function productsUnder(
  { values, size }: Input,
  scale: ScaleTrial,
  format: ScalarFormat,
): (product: Product) => Float32Array {
  const by = divisors(scale, size[1]);
  const amaxes = amaxesOf(values, scale.shape, size);
  const { max } = factsOf(format);
  const at = scaleAt(scale.shape, size[1]);
  return ({ of }) =>
    values.map((value, i) => {
      const block = at(Math.floor(i / size[1]), i % size[1]);
      return of(value, by[block] as number, amaxes[block] as number, max);
    });
}

/** The minimum share of inexact elements on the farther neighbour that suggests random bits: a fifth of the expected quarter. */
const RANDOM_SHARE = 1 / 20;

/**
 * Whether enough codes are on the farther neighbour to suggest random bits, which put a quarter of the inexact ones there. A few
 * such codes, or a single one, are errors.
 */
function looksRandom(format: ScalarFormat, products: Float32Array, codes: Uint8Array): boolean {
  const nearest = { rounding: "tiesToEven", zero: "kept", overflow: "saturate" } as const;
  const lower = { ...nearest, rounding: "towardZero" } as const;
  const upper = { ...nearest, rounding: "awayFromZero" } as const;
  let [inexact, farther] = [0, 0];
  for (const [i, code] of codes.entries()) {
    const product = products[i] as number;
    const has = (rule: ElementRule) => fits(format, rule, product, code);
    if (has(lower) && has(upper)) continue;
    inexact++;
    if (!has(nearest)) farther++;
  }
  return farther > 1 && farther >= inexact * RANDOM_SHARE;
}

/** A NaN product, such as 0 / 0, contradicts nothing. */
function fits(format: ScalarFormat, rule: ElementRule, product: number, code: number): boolean {
  return Number.isNaN(product) || becomes(format, rule, product, code);
}

const CERTAIN = ELEMENT_ROUNDINGS.filter((rounding) => rounding !== "stochastic");

function rules(roundings: readonly ElementRounding[]): readonly ElementRule[] {
  return roundings.flatMap((rounding) =>
    ELEMENT_ZEROS.flatMap((zero) => ELEMENT_OVERFLOWS.map((overflow) => ({ rounding, zero, overflow }))),
  );
}

/** Keeps the rules with the same `zero` and `overflow` as the first rule: no element distinguishes the other rules from these. */
function simplest(fitting: readonly ElementRule[]): readonly ElementRule[] {
  const [first] = fitting;
  return fitting.filter((rule) => rule.zero === first?.zero && rule.overflow === first.overflow);
}
