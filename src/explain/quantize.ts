/** Explains why an element of a quantized tensor has its code: every step, as plain data. */
import { blockFormat, hasGivenScale, isDirectionless, isTensorWide } from "../formats/block.js";
import type { BlockScaleFormat } from "../formats/datapath.js";
import { tensorScaleRole } from "../formats/scale-rules.js";
import { elementBits, type RandomSource } from "../random.js";
import { copyGeometry } from "../tensor/geometry.js";
import { codePlace, linePlace, scaleIndex } from "../tensor/places.js";
import type { Direction, QuantizeSpec } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import { f32Bits } from "./binary.js";
import { blockScaleBy } from "./block-scale.js";
import { type Amax, CopySource, type Region, type TensorValues } from "./blocks.js";
import { type DialectValues, dequantizedValue, type ExplainedValue } from "./dequantized.js";
import { roundedElement, scaledElement } from "./element.js";
import type { FourOverSixResult, ScaleCandidate } from "./four-over-six.js";
import { TRANSFORMED } from "./hadamard.js";
import { type RoundingExplanation, roundTo } from "./rounding.js";
import type { RuleResult } from "./scale-rules.js";
import { div, type ExplainedStep, Steps } from "./steps.js";
import { type ExplainedTensorScale, tensorScaleOf } from "./tensor-scale.js";

/** The inputs of a quantization besides the tensor and the spec. */
export interface QuantizeContext {
  /** The copy that is explained. */
  readonly direction: Direction;
  /** The factor of elements, an f32. For quantizers whose caller sets the scale. */
  readonly scale?: number | undefined;
  /** An f32 amax that replaces the amax of the tensor. */
  readonly amax?: number | undefined;
  /** The random bits of a stochastic quantization. */
  readonly random?: RandomSource | undefined;
  /** Random bits to use instead of `random`: one word for each element of the copy, in the order of its codes. */
  readonly randomBits?: Uint32Array | undefined;
  /** How a dialect's library dequantizes. Default: as `dequantize` does in f32. */
  readonly values?: DialectValues | undefined;
}

/** How one element became its code. All numbers are f32 values unless they are codes. */
export interface QuantizeExplanation {
  /** The settings of the quantization. */
  readonly spec: QuantizeSpec;
  /** The copy that is explained. */
  readonly direction: Direction;
  /** The row and column of the element in the matrix. */
  readonly at: readonly [row: number, column: number];
  /** The type of the tensor. */
  readonly dtype: WideDType;
  /** The element of the tensor. */
  readonly input: number;
  /** The random Hadamard transform before quantization: the rows of the column that it mixes, and its result. */
  readonly transform?: {
    readonly rows: readonly [first: number, end: number];
    readonly inputs: readonly number[];
    readonly value: number;
  };
  /** The elements that share the scale, and their amax. Absent if the caller sets the scale. */
  readonly block?: Region & { readonly amax: Amax };
  /** The amax of the tensor, where scales depend on it; with `rowScaled`, the amax of the element's row (rowwise) or column. */
  readonly tensorAmax?: Amax & { readonly given: boolean };
  /** The scale of the tensor, where the rule stores a scale instead of the amax. */
  readonly tensorScale?: ExplainedTensorScale;
  /** The steps from the amax to the scale, the scale's value, and its stored form. */
  readonly scale: {
    readonly steps: readonly ExplainedStep[];
    readonly rounding?: RoundingExplanation;
    /** The two scales that 4over6 chooses from. */
    readonly candidates?: readonly ScaleCandidate[];
    readonly dtype: BlockScaleFormat;
    readonly value: number;
    /** The stored bits: an f32, or a code. */
    readonly code: number;
    /** The index among the scales of the copy, in logical layout and row-major order. */
    readonly index: number;
  };
  /** How the element is scaled into the range of the format. */
  readonly scaled: { readonly steps: readonly ExplainedStep[]; readonly value: number };
  /** How the scaled value became the code. */
  readonly rounding: RoundingExplanation;
  /** The code. */
  readonly code: number;
  /** The row and column of the code in the codes of the copy. */
  readonly codeAt: readonly [row: number, column: number];
  /**
   * The value of the code under its scales. With the transform this is a transformed element; `dequantize` applies the inverse
   * transform to 16 transformed elements.
   */
  readonly dequantized: ExplainedValue;
  /**
   * The dequantized value minus the (transformed) element; `relative` divides by the element's magnitude and is 0 if there is no
   * error.
   */
  readonly error: { readonly absolute: number; readonly relative: number };
}

/** The scale of a block, with its steps. */
interface BlockScale extends RuleResult {
  readonly region: Region;
  readonly amax: Amax;
  readonly steps: readonly ExplainedStep[];
  readonly candidates?: FourOverSixResult["candidates"];
}

/** Explains elements of one copy of a quantized tensor. Scales are computed once for each block. */
export class QuantizeExplainer {
  readonly #source: CopySource;
  readonly #scales = new Map<number, BlockScale>();

  constructor(
    private readonly values: TensorValues,
    private readonly spec: QuantizeSpec,
    private readonly context: QuantizeContext,
  ) {
    this.#source = new CopySource(values, spec, context.direction);
  }

  /** Explains the element at a row and a column, which must exist. */
  explain(row: number, column: number): QuantizeExplanation {
    const { spec, values, context } = this;
    const source = this.#source;
    const scale = this.#scaleOf(row, column);
    const value = source.value(row, column);
    const scaled = scaledElement(value, scale, this.spec.elementScaling, values.dtype);
    const rounding = this.round(scaled.value, row, column);
    const tensorAmax = usesWiderAmax(spec) ? this.#tensorAmax(row, column) : undefined;
    const tensorScale = tensorAmax && this.#tensorScale(tensorAmax);
    const dequantized = this.#dequantized(rounding, scale, tensorAmax, tensorScale);
    const geometry = copyGeometry(spec, [source.rows, source.columns], context.direction, "logical");
    const { region, amax } = scale;
    return {
      spec,
      direction: context.direction,
      at: [row, column],
      dtype: values.dtype,
      input: source.input(row, column),
      ...(source.isTransformed ? { transform: this.#transform(row, column, value) } : {}),
      ...(hasGivenScale(spec) ? {} : { block: { ...region, amax } }),
      ...(tensorAmax ? { tensorAmax } : {}),
      ...(tensorScale ? { tensorScale } : {}),
      scale: {
        steps: scale.steps,
        ...(scale.rounding ? { rounding: scale.rounding } : {}),
        ...(scale.candidates ? { candidates: scale.candidates } : {}),
        dtype: blockFormat(spec.quantizer).scale,
        value: scale.scale,
        code: scale.code,
        index: scaleIndex(spec, geometry, linePlace(geometry, row, column)),
      },
      scaled,
      rounding,
      code: rounding.code,
      codeAt: codePlace(geometry, row, column),
      dequantized,
      error: errorOf(dequantized.value, value),
    };
  }

  /** The number that is rounded to the code of an element. */
  scaledValue(row: number, column: number): number {
    const { spec, values } = this;
    const value = this.#source.value(row, column);
    return scaledElement(value, this.#scaleOf(row, column), spec.elementScaling, values.dtype).value;
  }

  /** Rounds a scaled element. */
  round(value: number, row: number, column: number): RoundingExplanation {
    const { spec, context } = this;
    const { format } = spec;
    const overflow = "saturate";
    if (!spec.stochastic) return roundedElement(value, spec, overflow);
    // both copies use the same random bits where one is derived from the other
    const direction = isDirectionless(spec) ? "rowwise" : context.direction;
    const { rows, columns } = this.#source;
    const geometry = copyGeometry(spec, [rows, columns], direction, "logical");
    const [r, c] = codePlace(geometry, row, column);
    const index = r * (geometry.dataShape[1] as number) + c;
    const callerBits = context.randomBits?.[index];
    if (callerBits !== undefined)
      return roundTo(value, {
        format,
        rounding: "stochastic",
        overflow,
        random: { bits: callerBits, width: 32 },
      });
    const bits = elementBits(context.random ?? { seed: 0n, offset: 0n }, index, direction === "columnwise");
    return roundTo(value, { format, rounding: "stochastic", overflow, random: { bits, width: 8 } });
  }

  #transform(row: number, column: number, value: number): NonNullable<QuantizeExplanation["transform"]> {
    const first = row - (row % TRANSFORMED);
    const inputs = this.#source.inputs(row, column);
    return { rows: [first, first + TRANSFORMED], inputs, value };
  }

  #tensorAmax(row: number, column: number): Amax & { readonly given: boolean } {
    const { amax } = this.context;
    return amax === undefined
      ? { ...this.#source.levelOf(row, column), given: false }
      : { value: amax, given: true };
  }

  #tensorScale({ value }: Amax): ExplainedTensorScale | undefined {
    const { scaleRule } = this.spec;
    return tensorScaleRole(scaleRule) && tensorScaleOf(scaleRule, value, this.values.dtype);
  }

  #scaleOf(row: number, column: number): BlockScale {
    const region = this.#source.regionOf(row, column);
    const key = region.top * this.#source.columns + region.left;
    const cached = this.#scales.get(key);
    if (cached) return cached;
    const computed = this.#computeScale(region);
    this.#scales.set(key, computed);
    return computed;
  }

  #computeScale(region: Region): BlockScale {
    const { spec, context, values } = this;
    const steps = new Steps();
    if (hasGivenScale(spec)) {
      const m = steps.add("m", "the scale that was given", context.scale ?? 1);
      const scale = steps.add("s", "1 ⊘ m", div(1, m));
      return { region, amax: { value: 0 }, steps: steps.list, scale, code: f32Bits(scale), multiplier: m };
    }
    const tensorAmax = usesWiderAmax(spec) ? this.#tensorAmax(region.top, region.left) : { value: 0 };
    const amax = isTensorWide(spec.tile) ? tensorAmax : this.#source.amaxIn(region);
    const result = blockScaleBy(spec, {
      steps,
      amax: amax.value,
      tensorAmax: tensorAmax.value,
      dtype: values.dtype,
      tensorScale: this.#tensorScale(tensorAmax)?.value ?? 1,
      lines: spec.fourOverSix === "none" ? [] : this.#source.lines(region),
    });
    return { region, amax, steps: steps.list, ...result };
  }

  #dequantized(
    { result }: RoundingExplanation,
    { scale }: RuleResult,
    amax: Amax | undefined,
    ofTensor: ExplainedTensorScale | undefined,
  ): ExplainedValue {
    const { spec, context, values } = this;
    const tensorAmax = blockFormat(spec.quantizer).tensorAmax ? (amax?.value ?? 0) : 0;
    const stored = { element: result, scale, tensorAmax, tensorScale: ofTensor?.value };
    return dequantizedValue(spec, stored, context.values, values.dtype);
  }
}

/** Whether scales depend on an amax beyond their block: the amax of the tensor or, with `rowScaled`, of a line. */
export function usesWiderAmax({ quantizer, tile }: QuantizeSpec): boolean {
  const { tensorAmax, scaleSource } = blockFormat(quantizer);
  return tensorAmax || (isTensorWide(tile) && scaleSource === "whole");
}

function errorOf(dequantized: number, value: number): QuantizeExplanation["error"] {
  if (dequantized === value) return { absolute: 0, relative: 0 };
  const absolute = dequantized - value;
  return { absolute, relative: Math.abs(absolute) / Math.abs(value) };
}
