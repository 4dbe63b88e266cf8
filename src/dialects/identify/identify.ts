/** Identifies the dialect, rounding and layout that produced codes and scales. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { BLOCK_FORMAT_NAMES, type BlockFormatName, blockFormat, type Tile } from "../../formats/block.js";
import { ELEMENT_SCALINGS } from "../../formats/element-scalings.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { scalingsOf } from "../../formats/scale-rules.js";
import { castTo } from "../../ops/cast/cast.js";
import { requireBackendOf } from "../../ops/execute.js";
import { anything, needed, oneOf, optionsOf } from "../../options.js";
import type { FourOverSix, QuantizeSpec } from "../../tensor/quantized.js";
import { requireF32, requireTensor, requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import type { DialectCount } from "../diff.js";
import { quantizerOf } from "../quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../table.js";
import type { ElementOverflow, ElementRounding, ElementZero } from "./elements.js";
import { areOf, type MatrixKind, quantizedBy } from "./expected.js";
import {
  type CodePacking,
  type CodeReading,
  codeReadings,
  requireCodes,
  type ScaleArrangement,
  type ScaleForm,
} from "./readings.js";
import {
  elementTrials,
  type Found,
  firstDifference,
  type Input,
  type ScaleTrial,
  scaleTrials,
  type TensorScaleForm,
} from "./search.js";
import { codeContradiction, elementWords, foundWords, layoutWords, scaleContradiction } from "./words.js";

/** The stored tensors that `identifyDialect` reads. */
export interface StoredCodes {
  /**
   * The codes: u8, or a scalar format. Four-bit codes are packed two to a byte; six-bit codes one to a byte, or four in three
   * bytes of u8. i32: eight 4-bit integers, each plus 8, as compressed-tensors packs them.
   */
  readonly codes: Tensor;
  /** The scales: u8, e8m0, e4m3, f32, bf16 or f16, in any arrangement. */
  readonly scales: Tensor;
  /** The global scale, f32 with one element; or the amaxes of a row-scaled matrix, f32 with one element for each row. */
  readonly tensorScale?: Tensor<"f32"> | undefined;
  /** The quantizer, if it is known. Default: every quantizer whose layout fits. */
  readonly quantizer?: BlockFormatName | undefined;
}

/** How elements were rounded to codes. */
export interface IdentifiedElements {
  /** How a value between two codes is rounded. */
  readonly rounding: ElementRounding;
  /** How zeros are encoded. */
  readonly zero: ElementZero;
  /** The result for a value beyond the largest finite one. */
  readonly overflow: ElementOverflow;
  /** The rounded expression and the rounding, in words. */
  readonly words: string;
}

/** One explanation of all codes and scales. */
export interface IdentifiedReading {
  /** The quantizer that has scales of this type and these blocks. */
  readonly quantizer: BlockFormatName;
  /** The element format. */
  readonly format: ScalarFormat;
  /** The block of elements that share a scale. */
  readonly tile: Tile;
  /** How codes are packed in bytes. */
  readonly packing: CodePacking;
  /** Whether the transpose is stored. */
  readonly transposed: boolean;
  /** The memory layout of the scale matrix. */
  readonly arrangement: ScaleArrangement;
  /** Whether the stored numbers are scales or their reciprocals. */
  readonly form: ScaleForm;
  /** The form in which the tensor scale is stored. */
  readonly tensorScale: TensorScaleForm;
  /** The scale rule: a key of `SCALE_RULES`, or the name of a rule that no dialect uses. */
  readonly scaleRule: string;
  /** Whether each row has an amax instead of one for the tensor (`rowScaled` of NVFP4). */
  readonly rowScaled: boolean;
  /** The error measure by which 4over6 chooses a block's scale (NVFP4), or `none`. */
  readonly fourOverSix: FourOverSix;
  /** The maximum of the block scales of NVFP4: 448, or 256 with 4over6. */
  readonly e4m3Max: 448 | 256;
  /** Every way of rounding that explains the codes. */
  readonly elements: readonly IdentifiedElements[];
  /** The dialects that have this rule and one of these ways of rounding. */
  readonly dialects: readonly DialectName[];
  /** The explanation, in one sentence. */
  readonly words: string;
}

/** A dialect that did not produce the codes and scales. */
export interface ExcludedDialect {
  /** The dialect. */
  readonly dialect: DialectName;
  /** The contradiction: the first scale or code that differs, or the reason that its formats do not fit. */
  readonly because: string;
}

/** The closest rule, if none explains all codes and scales. */
export interface NearestReading {
  /** The rule with the fewest differing scales. */
  readonly scaleRule: string;
  /** The number of scales that differ from this rule's scales. */
  readonly scales: DialectCount;
  /** The number of codes that differ from this rule's codes, under the closest element scaling. */
  readonly codes: DialectCount;
  /** The closest rule and its contradiction, in one sentence. */
  readonly words: string;
}

/** The possible origins of the codes and scales, found by exclusion. */
export interface Identification {
  /**
   * The dialects that explain every bit under the most common layout. Several dialects can be indistinguishable on this input;
   * the list is empty if none fits. Other readings may name others.
   */
  readonly dialects: readonly DialectName[];
  /** Every explanation. The most common layouts come first, and among these the rules that dialects use. */
  readonly readings: readonly IdentifiedReading[];
  /** Every dialect that no reading names, and its contradiction. */
  readonly excluded: readonly ExcludedDialect[];
  /** Present only if there is no reading. */
  readonly nearest?: NearestReading;
  /** The result, in one sentence. */
  readonly words: string;
}

const checkStored = optionsOf<StoredCodes>(
  {
    codes: needed(anything),
    scales: needed(anything),
    tensorScale: anything,
    quantizer: oneOf(BLOCK_FORMAT_NAMES),
  },
  "stored",
);

/**
 * Identifies how `x` (f32, bf16 or f16, finite) was quantized to these codes and scales, by exclusion: every scale rule, element
 * rounding, dialect and layout that explains every code and scale. It knows the rules and roundings of the tables and others that
 * kernels use (half away from zero, toward zero, swapped nibbles, swizzled or transposed scales, reciprocals), and NVFP4 with
 * 4over6 or row amaxes. All remaining explanations are returned, so a dialect is named only if every bit agrees with it. Waits
 * for the device.
 *
 * @throws `ArgumentError` for an empty `x`, NaN or infinities in `x`, and tensors on different backends, `DTypeError` for an
 * argument that is not a tensor of these types, `ShapeError` for codes and scales whose shape does not fit `x`, `DisposedError`
 * for a disposed tensor.
 */
export function identifyDialect(x: Tensor, stored: StoredCodes): Identification {
  const ownStored = checkStored("identifyDialect", stored);
  const source = requireWide("identifyDialect", "x", x);
  const codesTensor = requireTensor("identifyDialect", "codes", ownStored.codes);
  requireCodes(codesTensor);
  const scalesTensor = requireTensor("identifyDialect", "scales", ownStored.scales);
  const size = asMatrix(source.shape);
  const tensorScale = requireTensorScale(ownStored.tensorScale, size[0]);
  requireBackendOf("identifyDialect", source, codesTensor, scalesTensor, tensorScale);
  using _scope = new Scope();
  const values = castTo(source, "f32").dataSync() as Float32Array;
  const input: Input = {
    x: source,
    size,
    values,
    tensorScale: tensorScale?.dataSync() as Float32Array | undefined,
  };
  requireFinite(input);
  const readings = codeReadings(codesTensor, size);
  const formats = [...new Set(readings.map(({ format }) => format))];
  const all = scaleTrials(input, scalesTensor, formats).filter(
    ({ shape }) => ownStored.quantizer === undefined || shape.quantizer === ownStored.quantizer,
  );
  if (all.length === 0)
    throw new ShapeError(
      `identifyDialect: codes ${codesTensor.dtype} [${codesTensor.shape}] with scales ${scalesTensor.dtype} [${scalesTensor.shape}] fit no quantizer of a [${size}] matrix; give the codes and scales of this x`,
    );
  return identified(input, readings, all);
}

/** Throws `DTypeError` unless the type is f32, `ShapeError` unless there is one value, or one for each row. */
function requireTensorScale(value: unknown, rows: number): Tensor<"f32"> | undefined {
  if (value === undefined) return undefined;
  const tensor = requireF32("identifyDialect", "tensorScale", value);
  if (tensor.size === 1 || tensor.size === rows) return tensor;
  throw new ShapeError(
    `identifyDialect: tensorScale is [${tensor.shape}]; give one value, [1], or the amaxes of the rows, [${rows}]`,
  );
}

function requireFinite({ values, size: [, columns] }: Input): void {
  if (values.length === 0)
    throw new ArgumentError("identifyDialect: x is empty, so that nothing can be told; give a larger one");
  const index = values.findIndex((value) => !Number.isFinite(value));
  if (index < 0) return;
  throw new ArgumentError(
    `identifyDialect: x is ${values[index]} at [${Math.floor(index / columns)}, ${index % columns}], for which dialects promise nothing; give finite values`,
  );
}

function identified(
  input: Input,
  readings: readonly CodeReading[],
  all: readonly ScaleTrial[],
): Identification {
  const fitting = all.filter(({ different, tensorScale }) => different === 0 && tensorScale !== undefined);
  const candidates = fitting
    .flatMap((scale) =>
      readings
        .filter(({ format }) => format === scale.shape.format)
        .map((codes) => ({ scale, codes, elements: elementTrials(input, scale, codes) })),
    )
    .filter(({ elements }) => elements.length > 0)
    .map((each) => ({ each, reading: readingOf(each), odd: oddity(each) }))
    .sort(
      (a, b) =>
        a.odd - b.odd || Number(b.reading.dialects.length > 0) - Number(a.reading.dialects.length > 0),
    );
  const identified = candidates.map(({ reading }) => reading);
  const usual = candidates.find(({ reading }) => reading.dialects.length > 0)?.odd;
  const named = candidates.filter(({ odd }) => odd === usual).flatMap(({ reading }) => reading.dialects);
  const dialects = DIALECT_NAMES.filter((name) => named.includes(name));
  const base = candidates[0]?.each ?? nearestBase(input, readings, all);
  const excluded = DIALECT_NAMES.filter(
    (name) => !identified.some((each) => each.dialects.includes(name)),
  ).map((dialect) => ({
    dialect,
    because: contradiction(input, dialect, base, all),
  }));
  const nearest = candidates.length === 0 ? nearestReading(input, base) : undefined;
  const words = resultWords(dialects, identified, nearest);
  return { dialects, readings: identified, excluded, words, ...(nearest ? { nearest } : {}) };
}

/** A scale trial paired with a reading of the codes. */
type Base = Pick<Found, "scale" | "codes">;

/** The number of unusual properties of the layout and the scales. */
function oddity({ scale, codes }: Base): number {
  return layoutWords(codes, scale).length + oddScales(scale);
}

/** The number of unusual properties of a rule: outside the tables, 4over6, row amaxes. */
function oddScales({ settings }: ScaleTrial): number {
  if (!settings) return 1;
  const { rowScaled = false, fourOverSix = "none" } = settings;
  return Number(rowScaled) + Number(fourOverSix !== "none");
}

function readingOf(explanation: Found): IdentifiedReading {
  const { scale, codes, elements } = explanation;
  const { quantizer, format, tile } = scale.shape;
  const { rowScaled = false, fourOverSix = "none", e4m3Max = 448 } = scale.settings ?? {};
  const specs = elements.flatMap(({ spec }) => (spec ? [JSON.stringify(spec)] : []));
  return {
    quantizer,
    format,
    tile,
    packing: codes.packing,
    transposed: codes.transposed,
    arrangement: scale.reading.arrangement,
    form: scale.reading.form,
    tensorScale: scale.tensorScale ?? "not given",
    scaleRule: scale.rule,
    rowScaled,
    fourOverSix,
    e4m3Max,
    elements: elements.map((element) => ({
      rounding: element.rounding,
      zero: element.zero,
      overflow: element.overflow,
      words: elementWords(element),
    })),
    dialects: DIALECT_NAMES.filter((name) => specs.includes(JSON.stringify(specOf(name, scale.shape)))),
    words: foundWords(explanation),
  };
}

/** The spec of a dialect for a quantizer, format and tile; undefined if it does not support them. */
function specOf(dialect: DialectName, { quantizer, format, tile }: MatrixKind): QuantizeSpec | undefined {
  const { forms }: Dialect = DIALECTS[dialect];
  const form = forms.find((each) => each.quantizer === quantizer);
  const row = blockFormat(quantizer);
  if (!form || !(form.formats ?? row.elements).includes(format) || !(form.tiles ?? row.tiles).includes(tile))
    return undefined;
  return quantizerOf({ dialect, quantizer, format, tile }).spec;
}

/**
 * The trial with the smallest share of differing scales, where a rule outside the tables counts 0.01 more; among several, the one
 * with the fewest differing codes.
 */
function nearestBase(input: Input, readings: readonly CodeReading[], trials: readonly ScaleTrial[]): Base {
  const penaltyOf = (trial: ScaleTrial): number =>
    trial.different / trial.expected.length + (trial.settings ? 0 : 0.01);
  const minPenalty = trials.reduce(
    (share, trial) => Math.min(share, penaltyOf(trial)),
    Number.POSITIVE_INFINITY,
  );
  // the expected codes do not depend on how the scales are read
  const nearestTrials = new Map<string, ScaleTrial>();
  for (const trial of trials) {
    const rule = JSON.stringify([trial.shape, trial.settings]);
    if (penaltyOf(trial) === minPenalty && !nearestTrials.has(rule)) nearestTrials.set(rule, trial);
  }
  const candidates = [...nearestTrials.values()].flatMap((scale) => {
    const expected = expectedCodes(input, scale);
    return readings
      .filter(({ format }) => format === scale.shape.format)
      .map((codes) => ({ scale, codes, different: differences(expected, codes).different }));
  });
  const [nearest] = candidates.sort(
    (a, b) => a.different - b.different || oddScales(a.scale) - oddScales(b.scale),
  );
  return nearest as Base;
}

/** The codes by the rule's first element scaling; undefined for a rule outside the tables. */
function expectedCodes(input: Input, { shape, settings }: ScaleTrial): ArrayLike<number> | undefined {
  return settings && quantizedBy(input.x, shape, settings).plain.codes;
}

/** The number of codes that differ from the expected ones. */
function differences(
  expected: ArrayLike<number> | undefined,
  { codes }: CodeReading,
): { readonly different: number; readonly of: number } {
  const of = codes.length;
  if (!expected) return { different: of, of };
  return { different: codes.reduce((sum, code, i) => sum + Number(code !== expected[i]), 0), of };
}

function nearestReading(input: Input, base: Base): NearestReading {
  const { scale, codes } = base;
  const scales = { different: scale.different, of: scale.expected.length };
  const { counts, first } = nearestCodes(input, base);
  const where = first === undefined ? "" : `: ${first}`;
  const why = scaleContradiction(scale, input) ?? `${counts.different} of ${counts.of} codes differ${where}`;
  return {
    scaleRule: scale.rule,
    scales,
    codes: counts,
    words: `nearest are ${foundWords({ scale, codes, elements: [] })}, but ${why}`,
  };
}

/** The number of codes that differ under the rule's closest element scaling, and the first of them in words. */
function nearestCodes(
  input: Input,
  { scale, codes }: Base,
): { readonly counts: DialectCount; readonly first?: string } {
  const { settings, shape } = scale;
  if (!settings) return { counts: differences(undefined, codes) };
  const [nearest] = scalingsOf(settings.scaleRule, shape.format)
    .map((scaling) => {
      const expected = quantizedBy(input.x, shape, settings, scaling).plain.codes;
      return { scaling, expected, counts: differences(expected, codes) };
    })
    .sort((a, b) => a.counts.different - b.counts.different);
  if (!nearest) return { counts: differences(undefined, codes) };
  const { scaling, expected, counts } = nearest;
  const at = firstDifference(expected, codes.codes);
  if (at < 0) return { counts };
  const [actual, wantedCode] = [codes.codes[at] as number, expected[at] as number];
  return {
    counts,
    first: codeContradiction(input, at, actual, wantedCode, ELEMENT_SCALINGS[scaling].formula),
  };
}

/** The first stored scale or code that contradicts a dialect. */
function contradiction(input: Input, dialect: DialectName, base: Base, all: readonly ScaleTrial[]): string {
  const { shape, reading } = base.scale;
  const spec = specOf(dialect, shape);
  if (!spec) {
    const { forms }: Dialect = DIALECTS[dialect];
    return `it makes ${forms.map(({ quantizer }) => quantizer).join(", ")} otherwise than ${shape.quantizer} ${shape.format} ${shape.tile}`;
  }
  const trial = all.find(
    (each) =>
      each.reading === reading &&
      each.shape.format === shape.format &&
      each.settings !== undefined &&
      areOf(each.settings, spec),
  );
  if (!trial?.settings) return "its settings are not among those that were tried";
  const scales = scaleContradiction(trial, input);
  if (scales !== undefined) return scales;
  const { plain } = quantizedBy(input.x, shape, trial.settings, spec.elementScaling);
  const at = firstDifference(plain.codes, base.codes.codes);
  const [actual, wantedCode] = [base.codes.codes[at] ?? 0, plain.codes[at] ?? 0];
  return codeContradiction(
    input,
    Math.max(at, 0),
    actual,
    wantedCode,
    ELEMENT_SCALINGS[spec.elementScaling].formula,
  );
}

function resultWords(
  dialects: readonly DialectName[],
  readings: readonly IdentifiedReading[],
  nearest: NearestReading | undefined,
): string {
  const [first] = readings;
  if (nearest || !first) return `nothing known explains every code and scale; ${nearest?.words ?? ""}`;
  const others = readings.length > 1 ? `; ${readings.length - 1} other readings explain them too` : "";
  if (dialects.length === 0) return `no dialect of the table; ${first.words}${others}`;
  if (dialects.length === 1) return `${dialects[0]}; ${first.words}${others}`;
  return `${dialects.join(" or ")}, which these data do not tell apart; ${first.words}${others}`;
}
