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

/** A matrix and its quantized form. The values are those that the dialect's library computes. */
export interface Quantization extends Codes {
  readonly choice: Choice;
  readonly spec: QuantizeSpec;
  /** The quantized matrix's input, rounded to its type. */
  readonly inputs: Float32Array;
  /** The tensor with zero padding, for explanations. */
  readonly source: TensorValues;
}

/** Quantizes a matrix. If the format requires full blocks, the matrix is padded with zeros, which the result omits. */
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

/** The smallest multiple that is at least `size`. */
export function roundUp(size: number, multiple: number): number {
  return Math.max(1, Math.ceil(size / multiple)) * multiple;
}

/** The values of a matrix, padded with zeros to `height` rows and `width` columns. */
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
