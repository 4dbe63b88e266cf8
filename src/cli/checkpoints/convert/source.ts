/** The values of a weight, quantized or not, a few rows at a time. */
import { FileError } from "../../../errors.js";
import { valueOfCode } from "../../../formats/derive.js";
import { tensorDType } from "../../../io/dtypes.js";
import { isWide, type Shape, storageBits, type WideDType } from "../../../tensor/shape.js";
import { dequantizedRows } from "../stored/dequantize.js";
import type { StoredTensor } from "../stored/open.js";
import { rowsAtATime } from "../stored/rows.js";
import { matricesOf, type QuantizedWeight } from "../stored/weight.js";

/** A weight that is to be quantized. */
export interface Source {
  readonly name: string;
  readonly shape: Shape;
  /** The type that is quantized: that of the tensor; the exact values of a quantized weight are rounded to f32. */
  readonly dtype: WideDType;
  /** The number of elements that one reading takes at most. */
  rows(): AsyncGenerator<SourceRows, undefined>;
}

/** Whole rows of one matrix: a multiple of 128 rows, or the last ones. */
export interface SourceRows {
  readonly rows: number;
  readonly columns: number;
  /** The elements in the type that is quantized. */
  readonly bytes: Uint8Array;
  /** The exact values. Valid until the next rows are asked for. */
  readonly values: Float32Array | Float64Array;
}

/** A tensor of the checkpoint that is not quantized. */
export function plainSource(stored: StoredTensor): Source {
  const { name, shape } = stored.entry;
  const type = tensorDType(stored.entry.dtype);
  if (type === undefined || !isWide(type)) throw new FileError(`tensor "${name}": is ${stored.entry.dtype}`);
  return { name, shape, dtype: type, rows: () => plainRows(stored, type) };
}

/** A quantized weight, by its exact values. */
export function quantizedSource(weight: QuantizedWeight): Source {
  const [, , columns] = matricesOf(weight.shape);
  async function* rows(): AsyncGenerator<SourceRows, undefined> {
    for await (const { values } of dequantizedRows(weight)) {
      const floats = Float32Array.from(values);
      yield { rows: values.length / columns, columns, bytes: bytesOf(floats), values };
    }
  }
  return { name: weight.name, shape: weight.shape, dtype: "f32", rows };
}

async function* plainRows(
  { shard, entry }: StoredTensor,
  dtype: WideDType,
): AsyncGenerator<SourceRows, undefined> {
  const [matrices, rows, columns] = matricesOf(entry.shape);
  const rowBytes = (columns * storageBits(dtype)) / 8;
  const step = Math.min(rows, rowsAtATime(rowBytes));
  const room = new Float32Array(Math.min(rows, step) * columns);
  for (let matrix = 0; matrix < matrices; matrix++) {
    for (let row = 0; row < rows; row += step) {
      const count = Math.min(step, rows - row);
      const at = (matrix * rows + row) * rowBytes;
      const bytes = await shard.read(entry, at, at + count * rowBytes);
      yield { rows: count, columns, bytes, values: widened(dtype, bytes, room) };
    }
  }
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** Bytes as the elements that they are; copied if they begin at an odd address. */
function aligned(bytes: Uint8Array, size: number): Uint8Array {
  return bytes.byteOffset % size === 0 ? bytes : bytes.slice();
}

const HALF = Float32Array.from({ length: 65536 }, (_, code) => valueOfCode("f16", code));

/** The elements of a wide type as f32, in `room` unless they are f32 already. */
function widened(dtype: WideDType, bytes: Uint8Array, room: Float32Array): Float32Array {
  const size = storageBits(dtype) / 8;
  const { buffer, byteOffset, byteLength } = aligned(bytes, size);
  const count = byteLength / size;
  if (size === 4) return new Float32Array(buffer, byteOffset, count);
  const halves = new Uint16Array(buffer, byteOffset, count);
  const floats = room.subarray(0, count);
  const { shifted } = WIDENING[dtype];
  if (shifted) {
    const words = new Uint32Array(floats.buffer, floats.byteOffset, count);
    for (let i = 0; i < count; i++) words[i] = (halves[i] as number) << 16;
  } else for (let i = 0; i < count; i++) floats[i] = HALF[halves[i] as number] as number;
  return floats;
}

/** Whether the elements of a type are the upper half of those of f32. */
const WIDENING: Readonly<Record<WideDType, { readonly shifted: boolean }>> = {
  f32: { shifted: false },
  bf16: { shifted: true },
  f16: { shifted: false },
};

/** The largest magnitude of a weight. Throws `FileError` for NaN and infinity. */
export async function amaxOf(source: Source): Promise<number> {
  let amax = 0;
  for await (const { values } of source.rows()) {
    const own = largest(values);
    if (!Number.isFinite(own)) throw notFinite(source.name);
    if (own > amax) amax = own;
  }
  return Math.fround(amax);
}

/** The largest magnitude; NaN if there is one among the values. */
function largest(values: Float32Array | Float64Array): number {
  let max = 0;
  let sum = 0;
  for (let i = 0; i < values.length; i++) {
    const magnitude = Math.abs(values[i] as number);
    if (magnitude > max) max = magnitude;
    sum += magnitude * 0;
  }
  return sum === 0 ? max : Number.NaN;
}

/** The error for a weight with NaN or infinity, for which libraries have different rules. */
export function notFinite(name: string): FileError {
  return new FileError(
    `tensor "${name}": has NaN or infinity, which is not quantized; leave it out by --tensors`,
  );
}
