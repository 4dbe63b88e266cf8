/** How far the codes of a weight are from its original, element by element. */

import type { Codes } from "../../stored/code-rows.js";
import { CODE_TYPES, type CodeTypeName } from "../../stored/code-types.js";
import { type Scales, scaleOf } from "../../stored/scales.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import type { Reading } from "./readings.js";

/** What arithmetic in bf16 adds to a difference, relative to the value: a rounded scale, and a rounded quotient. */
const ROUNDED = 2 ** -8;
/** Below this, libraries flush scales and values in ways of their own. */
const LEAST = 2 ** -120;
/** The least scale of e4m3, of which a smaller one may have become 0. */
const LEAST_SCALE = 2 ** -9;

/** The distances from the value of a code to the next larger and the next smaller one. */
interface Steps {
  readonly up: Float64Array;
  readonly down: Float64Array;
}

const STEPS = new Map<CodeTypeName, Steps>();

/**
 * The steps of a kind of code. Beyond the largest code, a value may be as much as this code without being another one: scales
 * that are rounded down, as powers of two or by an observer, let the largest values saturate.
 */
function stepsOf(type: CodeTypeName): Steps {
  const known = STEPS.get(type);
  if (known) return known;
  const { values, max } = CODE_TYPES[type];
  const sorted = [...new Set([...values].filter(Number.isFinite).map((value) => value + 0))].toSorted(
    (a, b) => a - b,
  );
  const step = (value: number, by: 1 | -1): number => {
    const next = sorted[sorted.indexOf(value + 0) + by];
    // half a step is compared with
    return next === undefined ? 2 * max : Math.abs(next - value);
  };
  const made = { up: values.map((value) => step(value, 1)), down: values.map((value) => step(value, -1)) };
  STEPS.set(type, made);
  return made;
}

/** Differences under one reading. */
export class Deviation {
  elements = 0;
  /** The sum of squares of the differences, and the largest of them. */
  squares = 0;
  max = 0;
  /** The number of elements that are further from their codes than half a step, and than a whole one. */
  beyondHalf = 0;
  beyondStep = 0;
  /** The number of codes of NaN that stand for other values. */
  nans = 0;
  /** The sum of squares that the nearest codes would have, about. */
  nearest = 0;
  #first: readonly [matrix: number, row: number, column: number] | undefined;
  #power = 0;
  #products = 0;
  #own = 0;
  readonly #values: Float64Array;
  readonly #steps: Steps;

  constructor(
    readonly reading: Reading,
    private readonly weight: QuantizedWeight,
    private readonly scales: Scales,
    /** The factor of each column, if there are some. */
    private readonly factors?: Float32Array,
  ) {
    const type = reading.type ?? weight.type;
    this.#values = CODE_TYPES[type].values;
    this.#steps = stepsOf(type);
  }

  /** The root mean square of the differences over that of the original. */
  get relative(): number {
    if (this.#power > 0) return Math.sqrt(this.squares / this.#power);
    return this.squares > 0 ? Number.POSITIVE_INFINITY : 0;
  }

  /** The factor of all values by which they are nearest to the original. */
  get factor(): number {
    return this.#products / this.#own;
  }

  /** How many elements are not near, and where the first one is. */
  get told(): string {
    const [matrix, row, column] = this.#first ?? [0, 0, 0];
    const at = this.weight.shape.length > 2 ? [matrix, row, column] : [row, column];
    return `${this.beyondHalf} of ${this.elements} codes are further from the original than half a step, ${this.beyondStep} than a whole one; the first is at [${at}]`;
  }

  /** Adds rows of codes and of the original. */
  add(codes: Codes, original: Float64Array, matrix: number, row: number, columns: number): void {
    const { kind, block, grid } = this.weight.geometry;
    const [height, width] = block;
    for (let at = 0; at < codes.length; at += columns) {
      const line = kind === "whole" ? 0 : matrix * grid[0] + Math.floor((row + at / columns) / height);
      for (let begin = 0, index = line * grid[1]; begin < columns; begin += width, index++) {
        const stored = this.scales.values[index] ?? Number.NaN;
        const end = Math.min(columns, begin + width);
        const before = this.beyondHalf;
        const first = this.#addBlock(codes, original, at + begin, at + end, stored, begin);
        if (before === 0 && first >= 0)
          this.#first = [matrix, row + Math.floor(first / columns), first % columns];
      }
    }
    this.elements += codes.length;
  }

  /** Adds elements under one scale. Returns the index of the first one that is not near, or -1. */
  #addBlock(
    codes: Codes,
    original: Float64Array,
    begin: number,
    end: number,
    stored: number,
    column: number,
  ): number {
    const { factor = 1, swapped } = this.reading;
    const values = this.#values;
    const { factors } = this;
    const { up, down } = this.#steps;
    const flip = swapped ? 1 : 0;
    const scale = factor * scaleOf(this.scales, stored);
    // a scale of 0 is one that was too small
    const size = Math.abs(stored === 0 ? scaleOf(this.scales, LEAST_SCALE) : scale);
    let [squares, power, products, own, nearest] = [0, 0, 0, 0, 0];
    let [half, whole, nans, first] = [0, 0, 0, -1];
    let { max } = this;
    for (let at = begin; at < end; at++) {
      const code = codes[at ^ flip] as number;
      const by = factors ? (factors[column + at - begin] as number) : 1;
      const value = (values[code] as number) * scale * by;
      const wanted = original[at] as number;
      const difference = Math.abs(value - wanted);
      const larger = up[code] as number;
      const smaller = down[code] as number;
      if (difference < Number.POSITIVE_INFINITY) {
        squares += difference * difference;
        if (difference > max) max = difference;
        power += wanted * wanted;
        products += wanted * value;
        own += value * value;
        nearest += (size * by * Math.min(larger, smaller)) ** 2 / 12;
      }
      const step = size * Math.abs(by) * (wanted > value === scale * by >= 0 ? larger : smaller);
      const slack = ROUNDED * Math.abs(wanted) + LEAST;
      if (difference <= step / 2 + slack) continue;
      if (Number.isNaN(value)) nans++;
      half++;
      if (!(difference <= step + slack)) whole++;
      if (first < 0) first = at;
    }
    this.squares += squares;
    this.max = max;
    this.#power += power;
    this.#products += products;
    this.#own += own;
    this.nearest += nearest;
    this.beyondHalf += half;
    this.beyondStep += whole;
    this.nans += nans;
    return first;
  }
}
