/** Measures the distance of the codes of a weight from its original, element by element. */

import type { Codes } from "../../stored/code-rows.js";
import { CODE_TYPES, type CodeTypeName } from "../../stored/code-types.js";
import { type Scales, scaleOf } from "../../stored/scales.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import type { Reading } from "./readings.js";

/** The relative error of bf16 arithmetic: a rounded scale, and a rounded quotient. */
const ROUNDED = 2 ** -8;
/** Below this magnitude, libraries flush scales and values to zero in different ways. */
const MIN_MAGNITUDE = 2 ** -120;
/** The least positive scale of e4m3. A smaller scale may have been stored as 0. */
const MIN_SCALE = 2 ** -9;

/** For each code, the distance from its value to the next larger value and to the next smaller value. */
interface Steps {
  readonly nextLarger: Float64Array;
  readonly nextSmaller: Float64Array;
}

const STEPS = new Map<CodeTypeName, Steps>();

/**
 * The steps of a code type. The step beyond the largest code is twice its magnitude, so that values up to twice the magnitude are
 * within half a step: if scales were rounded down, the largest values saturate.
 */
function stepsOf(type: CodeTypeName): Steps {
  const cached = STEPS.get(type);
  if (cached) return cached;
  const { values, max } = CODE_TYPES[type];
  const sortedValues = [...new Set([...values].filter(Number.isFinite).map((value) => value + 0))].toSorted(
    (a, b) => a - b,
  );
  const step = (value: number, direction: 1 | -1): number => {
    const next = sortedValues[sortedValues.indexOf(value + 0) + direction];
    // callers compare with half a step
    return next === undefined ? 2 * max : Math.abs(next - value);
  };
  const steps = {
    nextLarger: values.map((value) => step(value, 1)),
    nextSmaller: values.map((value) => step(value, -1)),
  };
  STEPS.set(type, steps);
  return steps;
}

/** The differences between a weight, under one reading, and its original. */
export class Deviation {
  elements = 0;
  /** The sum of squares of the differences, and the largest difference. */
  squares = 0;
  max = 0;
  /**
   * The number of elements that are more than half a step from their codes, and the number of elements that are more than a step
   * from them.
   */
  beyondHalf = 0;
  beyondStep = 0;
  /** The number of NaN codes in place of finite values. */
  nans = 0;
  /** An estimate of the sum of squared differences for the nearest code of every element. */
  nearest = 0;
  #first: readonly [matrix: number, row: number, column: number] | undefined;
  #power = 0;
  #products = 0;
  #valuePower = 0;
  readonly #values: Float64Array;
  readonly #steps: Steps;

  constructor(
    readonly reading: Reading,
    private readonly weight: QuantizedWeight,
    private readonly scales: Scales,
    /** The factor of each column; absent if the weight has no column factors. */
    private readonly factors?: Float32Array,
  ) {
    const type = reading.type ?? weight.type;
    this.#values = CODE_TYPES[type].values;
    this.#steps = stepsOf(type);
  }

  /** The root mean square of the differences divided by the root mean square of the original. */
  get relative(): number {
    if (this.#power > 0) return Math.sqrt(this.squares / this.#power);
    return this.squares > 0 ? Number.POSITIVE_INFINITY : 0;
  }

  /** The least-squares factor by which the values approximate the original. */
  get factor(): number {
    return this.#products / this.#valuePower;
  }

  /** Describes the elements that differ by more than half a step, and the position of the first. */
  get description(): string {
    const [matrix, row, column] = this.#first ?? [0, 0, 0];
    const position = this.weight.shape.length > 2 ? [matrix, row, column] : [row, column];
    return `${this.beyondHalf} of ${this.elements} codes are further from the original than half a step, ${this.beyondStep} than a whole one; the first is at [${position}]`;
  }

  /** Compares rows of codes with the original. */
  add(codes: Codes, original: Float64Array, matrix: number, row: number, columns: number): void {
    const { kind, block, grid } = this.weight.geometry;
    const [height, width] = block;
    for (let rowBegin = 0; rowBegin < codes.length; rowBegin += columns) {
      const line = kind === "whole" ? 0 : matrix * grid[0] + Math.floor((row + rowBegin / columns) / height);
      for (let begin = 0, index = line * grid[1]; begin < columns; begin += width, index++) {
        const storedScale = this.scales.values[index] ?? Number.NaN;
        const end = Math.min(columns, begin + width);
        const before = this.beyondHalf;
        const first = this.#addBlock(codes, original, rowBegin + begin, rowBegin + end, storedScale, begin);
        if (before === 0 && first >= 0)
          this.#first = [matrix, row + Math.floor(first / columns), first % columns];
      }
    }
    this.elements += codes.length;
  }

  /** Compares elements under one scale. Returns the index of the first element that differs by more than half a step, or -1. */
  #addBlock(
    codes: Codes,
    original: Float64Array,
    begin: number,
    end: number,
    storedScale: number,
    column: number,
  ): number {
    const { factor = 1, swapped } = this.reading;
    const values = this.#values;
    const { factors } = this;
    const { nextLarger, nextSmaller } = this.#steps;
    const flip = swapped ? 1 : 0;
    const scale = factor * scaleOf(this.scales, storedScale);
    // a scale that is stored as 0 was at most the least positive scale
    const size = Math.abs(storedScale === 0 ? scaleOf(this.scales, MIN_SCALE) : scale);
    let [squares, power, products, valuePower, nearest] = [0, 0, 0, 0, 0];
    let [half, full, nans, first] = [0, 0, 0, -1];
    let { max } = this;
    for (let index = begin; index < end; index++) {
      const code = codes[index ^ flip] as number;
      const columnFactor = factors ? (factors[column + index - begin] as number) : 1;
      const value = (values[code] as number) * scale * columnFactor;
      const expected = original[index] as number;
      const difference = Math.abs(value - expected);
      const stepUp = nextLarger[code] as number;
      const stepDown = nextSmaller[code] as number;
      if (difference < Number.POSITIVE_INFINITY) {
        squares += difference * difference;
        if (difference > max) max = difference;
        power += expected * expected;
        products += expected * value;
        valuePower += value * value;
        nearest += (size * columnFactor * Math.min(stepUp, stepDown)) ** 2 / 12;
      }
      const step =
        size * Math.abs(columnFactor) * (expected > value === scale * columnFactor >= 0 ? stepUp : stepDown);
      const slack = ROUNDED * Math.abs(expected) + MIN_MAGNITUDE;
      if (difference <= step / 2 + slack) continue;
      if (Number.isNaN(value)) nans++;
      half++;
      if (!(difference <= step + slack)) full++;
      if (first < 0) first = index;
    }
    this.squares += squares;
    this.max = max;
    this.#power += power;
    this.#products += products;
    this.#valuePower += valuePower;
    this.nearest += nearest;
    this.beyondHalf += half;
    this.beyondStep += full;
    this.nans += nans;
    return first;
  }
}
