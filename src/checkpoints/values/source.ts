/** The values of a weight, quantized or not, a few rows at a time. */
import { FileError } from "../../errors.js";
import { WIDE } from "../../formats/contract.gen.js";
import { fileDType, tensorDType } from "../../io/dtypes.js";
import { asBytes } from "../../tensor/data.js";
import { isWide, type Shape, storageBits, type WideDType } from "../../tensor/shape.js";
import type { Kernels } from "../kernels/kernels.js";
import { rowsAtATime, storedRows } from "../stored/code-rows.js";
import { dequantizedRows } from "../stored/dequantize.js";
import { toFloats } from "../stored/scales.js";
import type { StoredTensor } from "../stored/tensors.js";
import { transposedShape, transposing } from "../stored/transpose.js";
import { matricesOf, type QuantizedWeight } from "../stored/weight.js";
import type { Rows } from "./rows.js";

/** A weight to quantize. */
export interface Source {
  readonly name: string;
  readonly shape: Shape;
  /** The input type of the quantizer: the tensor's type, or f32 for a quantized weight, whose exact values are rounded. */
  readonly dtype: WideDType;
  /** All rows in order. */
  rows(kernels: Kernels): AsyncGenerator<SourceRows, undefined>;
}

/** Rows of one matrix: a multiple of 128 rows, except for the last rows. Valid until the next rows are requested. */
export interface SourceRows extends Rows {
  /** The elements in the input type of the quantizer. */
  readonly bytes: Uint8Array;
}

/** A tensor of the checkpoint that is not quantized. */
export function plainSource(tensor: StoredTensor): Source {
  const { name, shape } = tensor.entry;
  const dtype = wideTypeOf(tensor);
  async function* sourceRows(kernels: Kernels): AsyncGenerator<SourceRows, undefined> {
    const memory = (length: number): Uint8Array => kernels.buffer("values", length).bytes;
    for await (const { rows, columns, bytes } of storedRows(tensor, shape, storageBits(dtype), memory))
      yield { rows, columns, bytes, type: dtype, values: bytes };
  }
  return { name, shape, dtype, rows: sourceRows };
}

/** The type of a tensor that is not quantized. Throws `FileError` if the type is not wide. */
function wideTypeOf({ entry }: StoredTensor): WideDType {
  const dtype = tensorDType(entry.dtype);
  if (dtype !== undefined && isWide(dtype)) return dtype;
  throw new FileError(`tensor "${entry.name}": is ${entry.dtype}`);
}

/** The quantized weights and the tensors of a wide type, by name. */
export function sourcesOf(
  weights: readonly QuantizedWeight[],
  plainTensors: readonly StoredTensor[],
): ReadonlyMap<string, Source> {
  const isWideTensor = ({ entry }: StoredTensor): boolean => {
    const type = tensorDType(entry.dtype);
    return type !== undefined && isWide(type);
  };
  const sources = [...plainTensors.filter(isWideTensor).map(plainSource), ...weights.map(quantizedSource)];
  return new Map(sources.map((source) => [source.name, source]));
}

/** The exact values of a quantized weight. */
export function quantizedSource(weight: QuantizedWeight): Source {
  const [, , columns] = matricesOf(weight.shape);
  async function* rows(): AsyncGenerator<SourceRows, undefined> {
    for await (const { values } of dequantizedRows(weight)) {
      const bytes = asBytes(Float32Array.from(values));
      yield { rows: values.length / columns, columns, bytes, type: "f64", values };
    }
  }
  return { name: weight.name, shape: weight.shape, dtype: "f32", rows };
}

/** The weight with its last two dimensions exchanged. */
export function transposedSource(source: Source): Source {
  const shape = transposedShape(source.shape);
  const [, rows, columns] = matricesOf(shape);
  const elementBytes = storageBits(source.dtype) / 8;
  const rowBytes = columns * elementBytes;
  async function* rowsOf(kernels: Kernels): AsyncGenerator<SourceRows, undefined> {
    const matrices: Uint8Array[] = [];
    const appendTransposed = transposing(
      source.shape,
      elementBytes,
      async (matrix) => void matrices.push(matrix),
    );
    const step = Math.min(rows, rowsAtATime(rowBytes));
    for await (const { bytes } of source.rows(kernels)) {
      await appendTransposed(bytes);
      const matrix = matrices.pop();
      for (let row = 0; matrix && row < rows; row += step) {
        const part = matrix.subarray(row * rowBytes, (row + step) * rowBytes);
        yield { rows: part.length / rowBytes, columns, bytes: part, type: source.dtype, values: part };
      }
    }
  }
  return { ...source, shape, rows: rowsOf };
}

/** The values of rows as numbers. */
export function numbersOf({ type, values }: Rows): Float32Array | Float64Array {
  if (values instanceof Float64Array || values instanceof Float32Array) return values;
  if (type === "f64") throw new TypeError("f64 values are a Float64Array");
  return toFloats(fileDType(type), asBytes(values));
}

/** The amax of each matrix of a weight. Throws `FileError` for NaN and infinity. */
export async function amaxesOf(kernels: Kernels, source: Source): Promise<readonly number[]> {
  const [matrices, height] = matricesOf(source.shape);
  const amaxes = new Array<number>(matrices).fill(0);
  let row = 0;
  for await (const rows of source.rows(kernels)) {
    const matrix = Math.floor(row / height);
    amaxes[matrix] = Math.fround(Math.max(amaxes[matrix] as number, amaxOf(kernels, source.name, rows)));
    row += rows.rows;
  }
  return amaxes;
}

/** The amax of values. Throws `FileError` for NaN and infinity. */
export function amaxOf(kernels: Kernels, name: string, { type, values }: Rows): number {
  const amax = values instanceof Float64Array ? amaxOfDoubles(values) : amaxOfType(kernels, type, values);
  if (!Number.isFinite(amax)) throw notFinite(name);
  return amax;
}

/** The amax of values of a wide type; NaN or infinite if any value is NaN or infinite. */
function amaxOfType(kernels: Kernels, type: Rows["type"], values: ArrayBufferView): number {
  if (type === "f64") return Number.NaN;
  const count = (8 * values.byteLength) / storageBits(type);
  const src = kernels.put("values", values);
  const bits = Uint32Array.of(kernels.call("largestBits", { src, type: WIDE[type], count }));
  return toFloats(fileDType(type), asBytes(bits).subarray(0, storageBits(type) / 8))[0] ?? Number.NaN;
}

/** The amax of f64 values; NaN if a value is NaN or infinite. */
function amaxOfDoubles(values: Float64Array): number {
  let max = 0;
  let sum = 0;
  for (let i = 0; i < values.length; i++) {
    const magnitude = Math.abs(values[i] as number);
    if (magnitude > max) max = magnitude;
    sum += magnitude * 0;
  }
  return sum === 0 ? max : Number.NaN;
}

/** The error for a weight with NaN or infinity, which libraries quantize differently. */
export function notFinite(name: string): FileError {
  return new FileError(
    `tensor "${name}": has NaN or infinity, which is not quantized; leave it out by --tensors`,
  );
}
