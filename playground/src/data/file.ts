/** Tensors of a safetensors file that was dropped on the page. It is read in pieces and stays in the browser. */
import type { Backend } from "lockstep";
import { partsOf } from "../../../dist/src/io/codes.js";
import { FILE_DTYPES } from "../../../dist/src/io/dtypes.js";
import { type Header, parseHeader, type TensorEntry } from "../../../dist/src/io/header/header.js";
import { headerLengthOf, LENGTH_BYTES, requireLength } from "../../../dist/src/io/header/header-length.js";
import { recipesOf } from "../../../dist/src/io/quantized/quantized-file.js";
import { TensorSource } from "../../../dist/src/io/source.js";
import { bytesOfCodes, claimOf, readWeight, recognized } from "./checkpoint.js";
import { type Lines, MAX_SIZE } from "./numbers.js";
import { readStored, type Stored } from "./stored.js";

/** A quantized tensor, which consists of several tensors: its shape, and its kind in a few words. */
export interface QuantizedEntry extends Pick<TensorEntry, "shape"> {
  readonly kind: string;
}

/** A file's tensors, by name. */
export interface OpenFile {
  readonly name: string;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /** The quantized tensors. */
  readonly quantized: ReadonlyMap<string, QuantizedEntry>;
  /** Why tensors have no values of their own: they are codes without scales, or parts of quantized tensors. */
  readonly faults: ReadonlyMap<string, string>;
  /**
   * Reads as much of a tensor, as a matrix from (row, column) on, as the page shows. Throws an error for a tensor that has no
   * values.
   */
  read(tensor: string, row: number, column: number): Promise<Lines>;
  /** Reads codes and scales of a quantized tensor in the same window. */
  readStored(backend: Backend, tensor: string, row: number, column: number): Promise<Stored>;
}

const bytesOf = async (blob: Blob): Promise<Uint8Array> => new Uint8Array(await blob.arrayBuffer());

/**
 * Opens a file, with its configurations if there are any. Throws `FileError` for a file that is not safetensors, and for
 * configurations that cannot be parsed.
 */
export async function openFile(file: File, configurations: readonly File[] = []): Promise<OpenFile> {
  requireLength(file.name, file.size);
  const length = headerLengthOf(file.name, await bytesOf(file.slice(0, LENGTH_BYTES)), file.size);
  const start = LENGTH_BYTES + length;
  const header = await bytesOf(file.slice(LENGTH_BYTES, start));
  const parsed = parseHeader(file.name, header, file.size - start);
  const source = new BlobSource(file, start, parsed);
  const { tensors } = parsed;
  const recipes = recipesOf(source);
  const { weights, faults } = await recognized(source, await claimOf(configurations));
  const quantized = new Map<string, QuantizedEntry>();
  for (const [name, { spec, shape }] of recipes)
    quantized.set(name, { kind: `${spec.quantizer} ${spec.format} ${spec.tile}`, shape });
  for (const [name, { convention, shape }] of weights) quantized.set(name, { kind: convention, shape });
  return {
    name: file.name,
    tensors,
    quantized,
    faults,
    readStored: async (backend, name, row, column) => {
      const recipe = recipes.get(name);
      if (recipe) return readStored(backend, source, name, recipe, [row, column]);
      const weight = weights.get(name);
      if (!weight) throw new Error(`${file.name} has no quantized tensor ${name}`);
      return readWeight(weight, [row, column]);
    },
    read: async (name, row, column) => {
      const entry = tensors.get(name);
      if (!entry) throw new Error(`${file.name} has no tensor ${name}`);
      const fault = faults.get(name);
      if (fault !== undefined) throw new Error(fault);
      return readPart(file, start, entry, row, column);
    },
  };
}

/** A file in the browser as the library reads files. */
class BlobSource extends TensorSource {
  constructor(
    private readonly file: File,
    private readonly start: number,
    header: Header,
  ) {
    super(file.name, header);
  }

  read(entry: TensorEntry, begin = 0, end = entry.end - entry.begin): Promise<Uint8Array> {
    const first = this.start + entry.begin;
    return bytesOf(this.file.slice(first + begin, first + end));
  }
}

/** The rows and columns of a tensor seen as a matrix. */
export function sizeOf({ shape }: Pick<TensorEntry, "shape">): readonly [rows: number, columns: number] {
  const columns = shape.at(-1) ?? 1;
  return [shape.slice(0, -1).reduce((product, size) => product * size, 1), columns];
}

async function readPart(
  file: File,
  start: number,
  entry: TensorEntry,
  row: number,
  column: number,
): Promise<Lines> {
  const [rows, columns] = sizeOf(entry);
  const shown = [Math.min(MAX_SIZE, rows - row), Math.min(MAX_SIZE, columns - column)] as const;
  const { bits } = FILE_DTYPES[entry.dtype];
  const values = new Float32Array(shown[0] * shown[1]);
  for (let r = 0; r < shown[0]; r++) {
    const { offset, begin, end } = bytesOfCodes((row + r) * columns + column, shown[1], bits);
    const bytes = await bytesOf(file.slice(start + entry.begin + begin, start + entry.begin + end));
    const view = new DataView(bytes.buffer);
    for (let c = 0; c < shown[1]; c++) {
      const [part] = partsOf(entry.dtype, codeAt(view, bits, offset + c));
      values[r * shown[1] + c] = Number(part);
    }
  }
  return { rows: shown[0], columns: shown[1], values };
}

/** The code of an element. Codes of 4 and 6 bits are packed from the low bits. */
function codeAt(view: DataView, bits: number, index: number): bigint {
  if (bits === 64) return view.getBigUint64(8 * index, true);
  if (bits === 32) return BigInt(view.getUint32(4 * index, true));
  if (bits === 16) return BigInt(view.getUint16(2 * index, true));
  const bit = index * bits;
  const byte = bit >> 3;
  const next = byte + 1 < view.byteLength ? view.getUint8(byte + 1) : 0;
  return BigInt(((view.getUint8(byte) | (next << 8)) >> (bit & 7)) & (2 ** bits - 1));
}
