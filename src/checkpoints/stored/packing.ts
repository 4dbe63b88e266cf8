/** Unpacks tensors of packed codes to tensors with one element for each code. */

import type { TensorEntry } from "../../io/header/header.js";
import { rangeOf, TensorSource } from "../../io/source.js";
import { asBytes } from "../../tensor/data.js";
import type { Shape } from "../../tensor/shape.js";
import type { PackingName } from "./packing-names.js";
import type { StoredTensor } from "./tensors.js";
import { matricesOf } from "./weight.js";

interface Packing {
  /** The number of bytes that hold a row of `columns` codes. */
  readonly rowBytes: (columns: number, bits: number) => number;
  /** The number of rows of codes that one row of bytes holds. */
  readonly rows: number;
  /** The code at a column of one of these rows of codes. The row of bytes begins at `offset`. */
  readonly code: (bytes: Uint8Array, offset: number, row: number, column: number, bits: number) => number;
}

/** The code at a column of a row that is a stream of bits, from the low bits up. */
function codeInStream(bytes: Uint8Array, offset: number, _row: number, column: number, bits: number): number {
  const bit = column * bits;
  const first = offset + (bit >> 3);
  const pair = (bytes[first] as number) | ((bytes[first + 1] ?? 0) << 8);
  return (pair >> (bit & 7)) & (2 ** bits - 1);
}

const ROWS: Readonly<Record<PackingName, Packing>> = {
  bytes: { rowBytes: (columns, bits) => (columns * bits) / 8, rows: 1, code: codeInStream },
  words: { rowBytes: (columns, bits) => 4 * Math.ceil((columns * bits) / 32), rows: 1, code: codeInStream },
  rows: {
    rowBytes: (columns) => columns,
    rows: 2,
    code: (bytes, offset, row, column) => (((bytes[offset + column] as number) >> (4 * row)) & 15) ^ 8,
  },
  "high-first": {
    rowBytes: (columns) => columns / 2,
    rows: 1,
    code: (bytes, offset, _row, column) =>
      ((bytes[offset + (column >> 1)] as number) >> (column % 2 === 0 ? 4 : 0)) & 15,
  },
};

/** Maps the code of an element to a new code. The zero point depends on the position. */
export type Change = (code: number, matrix: number, row: number, column: number) => number;

/** The number of rows of a matrix that is packed into `storedRows` rows. */
export function rowsOf(packing: PackingName, storedRows: number): number {
  return storedRows * ROWS[packing].rows;
}

/** A tensor of packed codes, read as one element of one or two bytes for each code. */
class Unpacked extends TensorSource {
  constructor(
    path: string,
    private readonly view: TensorEntry,
    private readonly from: StoredTensor,
    private readonly packing: Packing & Pick<Packed, "bits" | "change" | "width">,
  ) {
    super(path, { tensors: new Map([[view.name, view]]), metadata: {} });
  }

  override async read(entry: TensorEntry, from?: number, to?: number): Promise<Uint8Array> {
    const [begin, end] = rangeOf(this.path, entry, from, to);
    const { rowBytes, rows: rowsPerLine, code, bits, width } = this.packing;
    const change = await this.packing.change();
    const [, rows, columns] = matricesOf(this.view.shape);
    const codes = new Uint16Array((end - begin) / width);
    if (codes.length === 0) return new Uint8Array();
    const line = rowBytes(columns, bits);
    const first = Math.floor(begin / width / columns);
    const last = Math.floor((end / width - 1) / columns);
    const top = Math.floor(first / rowsPerLine);
    const bytes = await this.from.shard.read(
      this.from.entry,
      top * line,
      (Math.floor(last / rowsPerLine) + 1) * line,
    );
    for (let row = first, index = 0; row <= last; row++) {
      const matrix = Math.floor(row / rows);
      const offset = (Math.floor(row / rowsPerLine) - top) * line;
      const skippedColumns = row === first ? begin / width - first * columns : 0;
      for (let column = skippedColumns; column < columns && index < codes.length; column++, index++)
        codes[index] = change(
          code(bytes, offset, row % rowsPerLine, column, bits),
          matrix,
          row % rows,
          column,
        );
    }
    return width === 2 ? asBytes(codes) : Uint8Array.from(codes);
  }
}

/** The packing of a tensor of codes, and the form of the unpacked codes. */
export interface Packed {
  readonly packing: PackingName;
  /** The bits of a code in the file. */
  readonly bits: number;
  /** The shape of the weight. */
  readonly shape: Shape;
  /** The bytes of an element of the result. */
  readonly width: 1 | 2;
  /** Returns the mapping of codes. Called before each read. */
  readonly change: () => Promise<Change>;
}

/** The tensor of codes with one element for each code. */
export function unpackedTensor(
  from: StoredTensor,
  { packing, bits, shape, width, change }: Packed,
): StoredTensor {
  const count = shape.reduce((product, size) => product * size, 1);
  const entry: TensorEntry = {
    ...from.entry,
    dtype: width === 2 ? "U16" : "U8",
    shape,
    begin: 0,
    end: width * count,
  };
  return {
    entry,
    shard: new Unpacked(from.shard.path, entry, from, { ...ROWS[packing], bits, change, width }),
  };
}

/** Unpacks integers that are packed down the columns of a tensor [G, N]. Each has `bits` bits and an offset of half the range. */
export function unpackColumn(
  packedWords: Uint8Array,
  { rows, columns, bits }: { readonly rows: number; readonly columns: number; readonly bits: number },
): Int32Array {
  const view = new DataView(packedWords.buffer, packedWords.byteOffset, packedWords.byteLength);
  const values = new Int32Array(rows * columns);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) {
      const bit = row * bits;
      const word = (wordAt: number): number => {
        const byte = 4 * (wordAt * columns + column);
        return byte + 4 <= packedWords.length ? view.getUint32(byte, true) : 0;
      };
      const index = bit >> 5;
      const low = bit & 31;
      const overhang = low + bits - 32;
      const high = overhang > 0 ? (word(index + 1) % 2 ** overhang) * 2 ** (32 - low) : 0;
      values[row * columns + column] =
        (Math.floor(word(index) / 2 ** low + high) % 2 ** bits) - 2 ** (bits - 1);
    }
  return values;
}
