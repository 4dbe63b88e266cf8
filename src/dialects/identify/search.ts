/** The search for what made codes and scales: each reading of them against each rule, to the first element that contradicts. */
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
  /** The scale of the tensor, or the amaxes of its rows, where they are given. */
  readonly tensorScale?: Float32Array | undefined;
}

/**
 * What is stored of a whole tensor: that which the rule stores, one over it, or in place of an amax the decode scale amax / 2688
 * or the encode scale 2688 / amax.
 */
export type TensorScaleForm =
  | "as the rule stores it"
  | "reciprocal"
  | "decode scale"
  | "encode scale"
  | "not given";

/** A rule whose scales were compared with a reading. */
export interface ScaleTrial {
  readonly shape: MatrixKind;
  readonly reading: ScaleReading;
  /** The rule of the tables, or the name of another. */
  readonly rule: string;
  readonly settings?: ScaleSettings;
  readonly formula: string;
  /** The scales by the rule. */
  readonly expected: Uint8Array | Float32Array;
  /** What the rule stores beside them: one number of the tensor, or with `rowScaled` the amax of each row. */
  readonly whole?: Float32Array;
  readonly tensorScale: TensorScaleForm | undefined;
  readonly different: number;
  /** The first scale that differs. */
  readonly first?: number;
}

/** One way in which elements can have become codes. */
export interface ElementTrial extends ElementRule {
  /** What is rounded. */
  readonly formula: string;
  /** The name in the table, where the library can do it. */
  readonly scaling?: ElementScalingName;
  readonly spec?: QuantizeSpec;
}

/** A reading that a rule explains in every bit. */
export interface Found {
  readonly scale: ScaleTrial;
  readonly codes: CodeReading;
  readonly elements: readonly ElementTrial[];
}

/** Where scales differ. Two NaN are equal. */
function mismatches(
  reading: ScaleReading,
  expected: Uint8Array | Float32Array,
): { different: number; first?: number } {
  const isReciprocal = reading.form === "reciprocal" && expected instanceof Float32Array;
  let [different, first] = [0, -1];
  for (let i = 0; i < expected.length; i++) {
    const own = expected[i] as number;
    if (Object.is(reading.scales[i], isReciprocal ? Math.fround(1 / own) : own)) continue;
    if (different++ === 0) first = i;
  }
  return different === 0 ? { different } : { different, first };
}

/** What is stored in each form, for the number that a rule has and, of an amax, the largest product of a code and a scale. */
const TENSOR_FORMS: Readonly<
  Record<Exclude<TensorScaleForm, "not given">, (own: number, largest: number) => number>
> = {
  "as the rule stores it": (own) => own,
  reciprocal: (own) => Math.fround(1 / own),
  "decode scale": (own, largest) => Math.fround(own / largest),
  "encode scale": (own, largest) => Math.fround(largest / own),
};
const ANY_FORMS = ["as the rule stores it", "reciprocal"] as const;
const AMAX_FORMS = [...ANY_FORMS, "decode scale", "encode scale"] as const;

/** The largest number of NVFP4 under the settings: an amax over it is the scale that decodes. */
function largestOf({ e4m3Max = 448 }: ScaleSettings): number {
  return 6 * e4m3Max;
}

/**
 * In which form stored scales of the tensor, or amaxes of rows, are those of a rule; undefined if in none. A tensor's scale may
 * be stored for each row.
 */
function tensorForm(
  settings: ScaleSettings,
  own: Float32Array,
  given: Float32Array | undefined,
): TensorScaleForm | undefined {
  if (given === undefined) return "not given";
  if (own.length !== 1 && own.length !== given.length) return undefined;
  const forms = tensorScaleRole(settings.scaleRule) === "amax" ? AMAX_FORMS : ANY_FORMS;
  const largest = largestOf(settings);
  return forms.find((form) =>
    given.every((each, i) =>
      Object.is(TENSOR_FORMS[form](own[own.length === 1 ? 0 : i] as number, largest), each),
    ),
  );
}

/** Every rule against every reading of the scales that goes with these formats. */
export function scaleTrials(
  input: Input,
  scales: Tensor,
  formats: readonly ScalarFormat[],
): readonly ScaleTrial[] {
  const trials: ScaleTrial[] = [];
  for (const quantizer of BLOCK_FORMAT_NAMES) {
    const row = blockFormat(quantizer);
    if (row.scaleSource === "given") continue;
    const own = formats.filter((format) => row.elements.includes(format));
    for (const tile of row.tiles) {
      const readings =
        own.length === 0 || input.size[1] % row.multiple !== 0
          ? []
          : scaleReadings(scales, quantizer, tile, input.size);
      if (readings.length === 0) continue;
      for (const format of own) trials.push(...trialsOf(input, { quantizer, format, tile }, readings));
    }
  }
  return trials;
}

function trialsOf(input: Input, shape: MatrixKind, readings: readonly ScaleReading[]): readonly ScaleTrial[] {
  const { scale: type } = blockFormat(shape.quantizer);
  const ofTables = scaleSettings(shape).flatMap((settings) => {
    const { plain } = quantizedBy(input.x, shape, settings);
    const { scales: expected, lineAmaxes } = plain;
    const whole = plain.whole === undefined ? lineAmaxes : Float32Array.of(plain.whole);
    const { formula } = SCALE_RULES[settings.scaleRule];
    const form = whole === undefined ? "not given" : tensorForm(settings, whole, input.tensorScale);
    const trial = { shape, rule: settings.scaleRule, settings, formula, expected, tensorScale: form };
    return [whole === undefined ? trial : { ...trial, whole }];
  });
  const amaxes = amaxesOf(input.values, shape, input.size);
  const others = OTHER_RULES[type].map(({ name, formula, of }) => {
    const made = Array.from(amaxes, (amax) => of(amax, shape.format));
    const expected = type === "f32" ? Float32Array.from(made) : Uint8Array.from(made);
    return { shape, rule: name, formula, expected, tensorScale: "not given" as const };
  });
  return readings.flatMap((reading) =>
    [...ofTables, ...others].map((trial) => ({ ...trial, reading, ...mismatches(reading, trial.expected) })),
  );
}

/** The first element whose code differs, or -1. */
export function firstDifference(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return i;
  return -1;
}

/** How an element scaling rounds. */
function ruleOf(scaling: ElementScalingName): ElementRule {
  const { bits }: ElementScaling = ELEMENT_SCALINGS[scaling];
  const zero = (["addsZero", "plusZero", "minusZero"] as const).find((bit) => bits.includes(bit)) ?? "kept";
  return { rounding: tiesOf(scaling), zero, overflow: "saturate" };
}

/** The ways by which a rule's scales and these codes go together: those of the library, or others if it has none. */
export function elementTrials(input: Input, scale: ScaleTrial, codes: CodeReading): readonly ElementTrial[] {
  const { settings } = scale;
  const known = settings ? scalingsOf(settings.scaleRule, scale.shape.format) : [];
  const fitting = known.flatMap((scaling): readonly ElementTrial[] => {
    if (!settings) return [];
    const { plain, spec } = quantizedBy(input.x, scale.shape, settings, scaling);
    if (firstDifference(plain.codes, codes.codes) >= 0) return [];
    return [{ ...ruleOf(scaling), formula: "", scaling, spec }];
  });
  return fitting.length > 0 ? fitting : otherElements(input, scale, codes);
}

/** A way to divide an element by its scale, whose result a kernel rounds to a code. */
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

/** Numbers rounded to the type of the input. */
function roundedAs({ x }: Input, products: Float32Array): Float32Array {
  using _scope = new Scope();
  const rounded = castTo(tensor(x.backend, products), x.dtype);
  return castTo(rounded, "f32").dataSync().slice() as Float32Array;
}

/** What elements of a block are divided by: its scale, with that of the tensor or of the row. */
function divisors({ expected, reading, settings, whole }: ScaleTrial, columns: number): Float32Array {
  const { scale: type } = blockFormat(reading.quantizer);
  const role = settings && tensorScaleRole(settings.scaleRule);
  const across = blocksIn(columns, scaleSpan(reading)[1]);
  return Float32Array.from(expected, (stored, i) => {
    const scale = scaleValue(type, stored);
    if (!settings || whole === undefined || role === undefined) return scale;
    const beside = whole[settings.rowScaled ? Math.floor(i / across) : 0] as number;
    if (role === "divisor") return fround(scale / beside);
    if (role === "multiplier") return fround(scale * beside);
    return fround(fround(scale * beside) * fround(1 / largestOf(settings)));
  });
}

/**
 * All ways of rounding that give these codes, the simplest ones first; for one product alone. Random bits explain codes only if
 * no other rounding of any product does, because they allow either neighbour.
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
        const said = typed ? `${formula}, rounded to ${x.dtype}` : formula;
        if (fitting.length > 0) return simplest(fitting).map((rule) => ({ ...rule, formula: said }));
      }
  return [];
}

/** The numbers that a product gives under a rule's scales. */
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

/** The least share of inexact elements whose codes random bits put on the farther side, a fifth of what is expected. */
const RANDOM_SHARE = 1 / 20;

/**
 * Whether so many codes are not the nearest ones that random bits can have chosen them: a quarter of those between two codes is
 * expected. A few others, or one alone, are wrong codes.
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

/** A NaN product, as zero over zero, says nothing. */
function fits(format: ScalarFormat, rule: ElementRule, product: number, code: number): boolean {
  return Number.isNaN(product) || becomes(format, rule, product, code);
}

const CERTAIN = ELEMENT_ROUNDINGS.filter((rounding) => rounding !== "stochastic");

function rules(roundings: readonly ElementRounding[]): readonly ElementRule[] {
  return roundings.flatMap((rounding) =>
    ELEMENT_ZEROS.flatMap((zero) => ELEMENT_OVERFLOWS.map((overflow) => ({ rounding, zero, overflow }))),
  );
}

/** Without those that differ from another only in what no element shows: usual zeros and overflow come first. */
function simplest(fitting: readonly ElementRule[]): readonly ElementRule[] {
  const [first] = fitting;
  return fitting.filter((rule) => rule.zero === first?.zero && rule.overflow === first.overflow);
}
