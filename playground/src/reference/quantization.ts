/** A matrix quantized under a dialect, as plain data. */
import {
  type Backend,
  BLOCK_FORMATS,
  type BlockFormat,
  DIALECTS,
  type Dialect,
  decode,
  dequantizeAs,
  encode,
  explainQuantize,
  type QuantizeExplanation,
  type QuantizeSpec,
  quantizerOf,
  type Tensor,
  type TensorValues,
  tensor,
  type WideDType,
} from "lockstep";
import { within } from "./backend.js";
import type { Choice } from "./choices.js";
import { type Codes, codesOf, crop } from "./codes.js";

/** Numbers of one type, row by row. */
export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float32Array;
  /** The type that the values are rounded to before they are quantized. */
  readonly dtype: WideDType;
}

/** A matrix and its quantized form; its values are those that the library of the dialect computes. */
export interface Quantization extends Codes {
  readonly choice: Choice;
  readonly spec: QuantizeSpec;
  /** What was quantized: the matrix, rounded to its type. */
  readonly inputs: Float32Array;
  /** The tensor with the zeros that pad it, as explanations take it. */
  readonly source: TensorValues;
}

/** Quantizes a matrix. Zeros fill it up to whole blocks where the format requires that; they are left out again. */
export function quantize(backend: Backend, matrix: Matrix, choice: Choice): Quantization {
  const { multiple }: BlockFormat = BLOCK_FORMATS[choice.quantizer];
  const { rows, columns, dtype } = matrix;
  const shape = [rows, roundUp(columns, multiple)] as const;
  return within(() => {
    const x = typed(tensor(backend, filled(matrix, shape), shape), dtype);
    const { dialect, quantizer, format, tile } = choice;
    const quantized = quantizerOf({ dialect, quantizer, format, tile }).quantize(x);
    const values = dequantizeAs(quantized, { dialect, dtype: "f32" }) as Tensor<"f32">;
    return {
      ...codesOf(quantized, values, [rows, columns]),
      choice,
      spec: quantized.spec,
      inputs: crop(wide(x), shape[1], rows, columns),
      source: { data: x.dataSync().slice(), dtype, shape },
    };
  });
}

/** Explains the element at (row, column), and its value under the dialect. */
export function explainElement(
  { source, spec, choice }: Quantization,
  row: number,
  column: number,
): QuantizeExplanation {
  const { values }: Dialect = DIALECTS[choice.dialect];
  return explainQuantize(source, { spec, values, at: [row, column] });
}

/** The least multiple that is not below a size. */
export function roundUp(size: number, multiple: number): number {
  return Math.max(1, Math.ceil(size / multiple)) * multiple;
}

/** The values of a matrix in the corner of a larger one, whose other elements are zero. */
function filled({ rows, columns, values }: Matrix, [height, width]: readonly [number, number]): Float32Array {
  const all = new Float32Array(height * width);
  for (let row = 0; row < rows; row++)
    all.set(values.subarray(row * columns, (row + 1) * columns), row * width);
  return all;
}

/** A tensor of f32 rounded to a type. */
function typed(x: Tensor<"f32">, dtype: WideDType): Tensor<WideDType> {
  return dtype === "f32" ? x : (encode(x, { format: dtype, overflow: "nonfinite" }) as Tensor<WideDType>);
}

function wide(x: Tensor<WideDType>): Float32Array {
  return x.dtype === "f32" ? (x as Tensor<"f32">).dataSync() : decode(x, { dtype: "f32" }).dataSync();
}
