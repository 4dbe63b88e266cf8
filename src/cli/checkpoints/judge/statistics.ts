/** Statistics of a quantized weight, in one pass over its codes. */
import { elementCount } from "../../../tensor/shape.js";
import { CODE_TYPES } from "../stored/code-types.js";
import { codeRows } from "../stored/rows.js";
import { type Scales, scaleOf } from "../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../stored/weight.js";
import { Correlation } from "./correlation.js";

/** What the scales of a weight are. */
export interface ScaleStatistics {
  readonly count: number;
  /** The least and the largest finite scale; NaN if there is none. */
  readonly min: number;
  readonly max: number;
  readonly zero: number;
  readonly negative: number;
  readonly notFinite: number;
  /** The number of finite positive scales that are powers of two. */
  readonly powersOfTwo: number;
}

/** What the codes of a weight and the values are. */
export interface Statistics {
  readonly elements: number;
  /** How often each code occurs. */
  readonly counts: Float64Array;
  readonly codesUsed: number;
  /** The numbers of elements that are zero, that have the largest magnitude of a code, and that are NaN. */
  readonly zeros: number;
  readonly saturated: number;
  readonly nans: number;
  readonly scale: ScaleStatistics;
  /** The largest magnitude of values, and their root mean square. */
  readonly amax: number;
  readonly rms: number;
  /** The same, if all scales of blocks were their reciprocals. */
  readonly inverse: { readonly amax: number; readonly rms: number };
  /** The numbers of blocks: with codes other than zero, that reach the largest code, with the scale zero, with codes of NaN. */
  readonly blocks: {
    readonly nonzero: number;
    readonly full: number;
    readonly zeroScaled: number;
    readonly withNaN: number;
  };
  /** The numbers of rows with codes other than zero, and of those that reach the largest code. */
  readonly rows: { readonly nonzero: number; readonly full: number };
  /** How the logarithms of scales and of root mean squares of codes go together, block by block; as stored, and as relaid. */
  readonly correlation: Correlation;
  readonly relaidCorrelation: Correlation;
}

/** Reads all codes of a weight and computes their statistics. `onBytes` is called with the number of bytes read. */
export async function statisticsOf(
  weight: QuantizedWeight,
  scales: Scales,
  onBytes: (count: number) => void = () => {},
): Promise<Statistics> {
  const { values, max, bits } = CODE_TYPES[weight.type];
  const [matrices, rows, columns] = matricesOf(weight.shape);
  const blocks = new Blocks(weight, scales);
  const counts = new Float64Array(values.length);
  let [nonzeroRows, fullRows] = [0, 0];
  for await (const { matrix, row, rows: count, codes } of codeRows(weight)) {
    for (let i = 0, at = 0; i < count; i++) {
      let amax = 0;
      for (let column = 0; column < columns; column++, at++) {
        const code = codes[at] ?? 0;
        counts[code] = (counts[code] ?? 0) + 1;
        const magnitude = Math.abs(values[code] ?? 0);
        if (magnitude > amax) amax = magnitude;
        blocks.add(column, magnitude);
      }
      if (amax > 0) nonzeroRows++;
      if (amax >= max) fullRows++;
      blocks.endRow(matrix, row + i);
    }
    onBytes((count * columns * bits) / 8);
  }
  const elements = matrices * rows * columns;
  const countIf = (test: (value: number) => boolean): number =>
    counts.reduce((sum, each, code) => (test(values[code] ?? 0) ? sum + each : sum), 0);
  return {
    elements,
    counts,
    codesUsed: counts.filter((each) => each > 0).length,
    zeros: countIf((value) => value === 0),
    saturated: countIf((value) => Math.abs(value) >= max),
    nans: countIf(Number.isNaN),
    scale: scaleStatistics(scales.values),
    rows: { nonzero: nonzeroRows, full: fullRows },
    ...blocks.end(elements),
  };
}

/** Sums over the blocks of a weight, whose elements come row by row. */
class Blocks {
  readonly #amax: Float64Array;
  readonly #squares: Float64Array;
  readonly #nans: Uint8Array;
  readonly #height: number;
  readonly #width: number;
  readonly #counts = { nonzero: 0, full: 0, zeroScaled: 0, withNaN: 0 };
  readonly #reading = { amax: 0, squares: 0 };
  readonly #inverse = { amax: 0, squares: 0 };
  readonly #stored = new Correlation();
  readonly #relaid = new Correlation();
  readonly #lastRow: number;
  readonly #max: number;

  constructor(
    private readonly weight: QuantizedWeight,
    private readonly scales: Scales,
  ) {
    const [, rows] = matricesOf(weight.shape);
    // a dimension of a weight without elements may be of any size
    const columns = elementCount(weight.shape) === 0 ? 0 : weight.geometry.grid[1];
    [this.#height, this.#width] = weight.geometry.block;
    this.#amax = new Float64Array(columns);
    this.#squares = new Float64Array(columns);
    this.#nans = new Uint8Array(columns);
    this.#lastRow = rows - 1;
    this.#max = CODE_TYPES[weight.type].max;
  }

  add(column: number, magnitude: number): void {
    const at = this.#width === 1 ? column : Math.floor(column / this.#width);
    if (magnitude > (this.#amax[at] ?? 0)) this.#amax[at] = magnitude;
    if (!Number.isNaN(magnitude)) this.#squares[at] = (this.#squares[at] ?? 0) + magnitude * magnitude;
    else this.#nans[at] = 1;
  }

  /** Ends a row; at the last row of blocks, their sums are taken into account. */
  endRow(matrix: number, row: number): void {
    if ((row + 1) % this.#height !== 0 && row !== this.#lastRow) return;
    const [rows, columns] = this.weight.geometry.grid;
    const shared = this.weight.geometry.kind === "whole";
    const begin = shared ? 0 : (matrix * rows + Math.floor(row / this.#height)) * columns;
    for (let at = 0; at < columns; at++) this.#endBlock(begin + at, at);
    this.#amax.fill(0);
    this.#squares.fill(0);
    this.#nans.fill(0);
  }

  #endBlock(index: number, at: number): void {
    const [amax = 0, squares = 0] = [this.#amax[at], this.#squares[at]];
    if (this.#nans[at]) this.#counts.withNaN++;
    if (amax === 0) {
      if (this.#nans[at]) this.#counts.nonzero++;
      return;
    }
    this.#counts.nonzero++;
    if (amax >= this.#max) this.#counts.full++;
    const stored = this.scales.values[index] ?? Number.NaN;
    if (stored === 0) this.#counts.zeroScaled++;
    const scale = Math.abs(scaleOf(this.scales, stored));
    const inverse = Math.abs(scaleOf(this.scales, 1 / stored));
    add(this.#reading, amax, squares, scale);
    add(this.#inverse, amax, squares, inverse);
    const y = Math.log2(squares) / 2;
    this.#stored.add(Math.log2(stored), y);
    if (this.scales.relaid) this.#relaid.add(Math.log2(this.scales.relaid[index] ?? Number.NaN), y);
  }

  end(
    elements: number,
  ): Pick<Statistics, "amax" | "rms" | "inverse" | "blocks" | "correlation" | "relaidCorrelation"> {
    const rms = (sum: number): number => (elements === 0 ? 0 : Math.sqrt(sum / elements));
    return {
      amax: this.#reading.amax,
      rms: rms(this.#reading.squares),
      inverse: { amax: this.#inverse.amax, rms: rms(this.#inverse.squares) },
      blocks: this.#counts,
      correlation: this.#stored,
      relaidCorrelation: this.#relaid,
    };
  }
}

function add(sums: { amax: number; squares: number }, amax: number, squares: number, scale: number): void {
  if (!Number.isFinite(scale)) return;
  sums.amax = Math.max(sums.amax, amax * scale);
  sums.squares += squares * scale * scale;
}

/** Statistics of scales, which their order does not change: -0 is below 0. */
export function scaleStatistics(values: Float32Array): ScaleStatistics {
  let [min, max] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  let [zero, negative, notFinite, powersOfTwo] = [0, 0, 0, 0];
  for (const value of values) {
    if (!Number.isFinite(value)) notFinite++;
    else {
      // a comparison would keep the first of the two zeros
      min = Math.min(min, value);
      max = Math.max(max, value);
      if (value === 0) zero++;
      else if (value < 0) negative++;
      else if (isPowerOfTwo(value)) powersOfTwo++;
    }
  }
  const none = max < min;
  return {
    count: values.length,
    min: none ? Number.NaN : min,
    max: none ? Number.NaN : max,
    zero,
    negative,
    notFinite,
    powersOfTwo,
  };
}

const WORD = new Uint32Array(1);
const FLOAT = new Float32Array(WORD.buffer);

/** Whether a positive f32 is a power of two. */
function isPowerOfTwo(value: number): boolean {
  FLOAT[0] = value;
  const word = WORD[0] ?? 0;
  const fraction = word & 0x7fffff;
  return word >= 0x800000 ? fraction === 0 : (fraction & (fraction - 1)) === 0;
}
