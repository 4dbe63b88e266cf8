/** The blocks of a matrix that share a scale: their elements, their amaxes, and the transform that precedes quantization. */
import { blockedRows, isTensorWide, tileSize } from "../formats/block.js";
import type { TensorData } from "../tensor/data.js";
import type { Direction, QuantizeSpec } from "../tensor/quantized.js";
import { asMatrix, type Shape, type WideDType } from "../tensor/shape.js";
import { TRANSFORMED, transformed } from "./hadamard.js";
import { wideValue } from "./steps.js";

/** The values of a tensor as plain data, as `data()` returns them. */
export interface TensorValues {
  /** The elements in row-major order: values of f32, codes of bf16 and f16. */
  readonly data: TensorData<WideDType>;
  /** The type of the elements. */
  readonly dtype: WideDType;
  /** The shape; leading dimensions are flattened into rows. */
  readonly shape: Shape;
}

/** An amax and its position. */
export interface Amax {
  /** The largest magnitude, NaN ignored. */
  readonly value: number;
  /** The row and column of the first element of that magnitude; absent if there is none above 0. */
  readonly at?: readonly [row: number, column: number];
}

/** Rows [top, bottom) and columns [left, right). */
export interface Region {
  /** The first row. */
  readonly top: number;
  /** The row after the last one. */
  readonly bottom: number;
  /** The first column. */
  readonly left: number;
  /** The column after the last one. */
  readonly right: number;
}

/** The values that one copy quantizes: the tensor's values, or their Hadamard transform, padded with zeros to whole blocks. */
export class CopySource {
  /** Rows of the copy: the tensor's rows, plus the padding rows that complete its last blocks. */
  readonly rows: number;
  readonly columns: number;
  readonly #tensorRows: number;
  #tensorAmaxCache: Amax | undefined;
  readonly #lines = new Map<number, Amax>();

  constructor(
    private readonly values: TensorValues,
    private readonly spec: QuantizeSpec,
    private readonly direction: Direction,
  ) {
    [this.#tensorRows, this.columns] = asMatrix(values.shape);
    this.rows = direction === "columnwise" ? blockedRows(spec, this.#tensorRows) : this.#tensorRows;
  }

  /** Whether the values are transformed before they are quantized. */
  get isTransformed(): boolean {
    return this.spec.rht && this.direction === "columnwise";
  }

  /** The tensor's element at a position; 0 in padding rows. */
  input(row: number, column: number): number {
    if (row >= this.#tensorRows) return 0;
    const { data, dtype } = this.values;
    return wideValue(dtype, data[row * this.columns + column] as number);
  }

  /** The inputs of the transform of an element: 16 rows of its column. */
  inputs(row: number, column: number): readonly number[] {
    const top = row - (row % TRANSFORMED);
    return Array.from({ length: TRANSFORMED }, (_, i) => this.input(top + i, column));
  }

  /** The value that is quantized. */
  value(row: number, column: number): number {
    if (!this.isTransformed) return this.input(row, column);
    return transformed(this.inputs(row, column), row % TRANSFORMED, this.spec.rhtSigns);
  }

  /** The block of an element: its tile, within the matrix. */
  regionOf(row: number, column: number): Region {
    const { tile } = this.spec;
    if (isTensorWide(tile)) return { top: 0, bottom: this.rows, left: 0, right: this.columns };
    const [lines, length] = tileSize(tile);
    const [high, wide] = this.direction === "rowwise" ? [lines, length] : [length, lines];
    const [top, left] = [row - (row % high), column - (column % wide)];
    return {
      top,
      bottom: Math.min(top + high, this.rows),
      left,
      right: Math.min(left + wide, this.columns),
    };
  }

  /** The lines of a block: its rows in the rowwise copy, its columns in the columnwise copy. */
  lines({ top, bottom, left, right }: Region): readonly (readonly number[])[] {
    const [rows, columns] = [bottom - top, right - left];
    const at = (r: number, c: number): number => this.value(top + r, left + c);
    if (this.direction === "rowwise")
      return Array.from({ length: rows }, (_, r) => Array.from({ length: columns }, (_, c) => at(r, c)));
    return Array.from({ length: columns }, (_, c) => Array.from({ length: rows }, (_, r) => at(r, c)));
  }

  /** The largest magnitude in a region. NaN is ignored; an empty region gives 0. */
  amaxIn({ top, bottom, left, right }: Region): Amax {
    let largest = 0;
    let at: readonly [number, number] | undefined;
    for (let r = top; r < bottom; r++) {
      for (let c = left; c < right; c++) {
        const magnitude = Math.abs(this.value(r, c));
        if (magnitude > largest) {
          largest = magnitude;
          at = [r, c];
        }
      }
    }
    return at ? { value: largest, at } : { value: 0 };
  }

  /** The amax of all values, computed once. */
  get tensorAmax(): Amax {
    this.#tensorAmaxCache ??= this.amaxIn({ top: 0, bottom: this.rows, left: 0, right: this.columns });
    return this.#tensorAmaxCache;
  }

  /** The amax that an element's scale depends on: the amax of its line with `rowScaled`, else of all values. */
  levelOf(row: number, column: number): Amax {
    return this.spec.rowScaled ? this.lineAmax(row, column) : this.tensorAmax;
  }

  /** The amax of an element's row, or of its column in the columnwise copy. */
  lineAmax(row: number, column: number): Amax {
    const isRow = this.direction === "rowwise";
    const line = isRow ? row : column;
    const [top, bottom] = isRow ? [row, row + 1] : [0, this.rows];
    const [left, right] = isRow ? [0, this.columns] : [column, column + 1];
    const amax = this.#lines.get(line) ?? this.amaxIn({ top, bottom, left, right });
    this.#lines.set(line, amax);
    return amax;
  }
}
