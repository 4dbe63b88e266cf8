/** Tensors of a safetensors file that was dropped on the page. It is read in pieces and stays in the browser. */
import type { Backend } from "lockstep";
import { partsOf } from "../../../dist/src/io/codes.js";
import { FILE_DTYPES } from "../../../dist/src/io/dtypes.js";
import { type Header, parseHeader, type TensorEntry } from "../../../dist/src/io/header/header.js";
import { headerLengthOf, LENGTH_BYTES, requireLength } from "../../../dist/src/io/header/header-length.js";
import { recipesOf } from "../../../dist/src/io/quantized/quantized-file.js";
import type { Recipe } from "../../../dist/src/io/quantized/recipe.js";
import { TensorSource } from "../../../dist/src/io/source.js";
import { type Lines, MAX_SIZE } from "./numbers.js";
import { readStored, type Stored } from "./stored.js";

/** A file's tensors, by name. */
export interface OpenFile {
  readonly name: string;
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /** The quantized tensors, each of which consists of several tensors, and how they are to be read. */
  readonly quantized: ReadonlyMap<string, Recipe>;
  /** Reads rows and columns of a tensor, seen as a matrix, from (row, column) on, as many as the page shows. */
  read(tensor: string, row: number, column: number): Promise<Lines>;
  /** Reads codes and scales of a quantized tensor, in the same way. */
  readStored(backend: Backend, tensor: string, row: number, column: number): Promise<Stored>;
}

const bytesOf = async (blob: Blob): Promise<Uint8Array> => new Uint8Array(await blob.arrayBuffer());

/** Opens a file. Throws `FileError` for one that is not in the safetensors format. */
export async function openFile(file: File): Promise<OpenFile> {
  requireLength(file.name, file.size);
  const length = headerLengthOf(file.name, await bytesOf(file.slice(0, LENGTH_BYTES)), file.size);
  const start = LENGTH_BYTES + length;
  const header = await bytesOf(file.slice(LENGTH_BYTES, start));
  const parsed = parseHeader(file.name, header, file.size - start);
  const source = new BlobSource(file, start, parsed);
  const { tensors } = parsed;
  const quantized = recipesOf(source);
  return {
    name: file.name,
    tensors,
    quantized,
    readStored: async (backend, name, row, column) => {
      const recipe = quantized.get(name);
      if (!recipe) throw new Error(`${file.name} has no quantized tensor ${name}`);
      return readStored(backend, source, name, recipe, [row, column]);
    },
    read: async (name, row, column) => {
      const entry = tensors.get(name);
      if (!entry) throw new Error(`${file.name} has no tensor ${name}`);
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
    const first = (row + r) * columns + column;
    // eight elements of any type begin at a byte
    const offset = first % 8;
    const begin = start + entry.begin + ((first - offset) * bits) / 8;
    const end = start + entry.begin + Math.ceil(((first + shown[1]) * bits) / 8);
    const bytes = await bytesOf(file.slice(begin, end));
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
