/** Reads a region of a tensor that is not quantized. */
import { partsOf } from "../../io/codes.js";
import { FILE_DTYPES } from "../../io/dtypes.js";
import type { StoredTensor } from "../stored/tensors.js";
import { bytesOfCodes, type MatrixRegion } from "./region.js";

/** The values of a region, row by row, rounded to f32. Complex numbers give their real parts. */
export async function readPlainRegion(
  { shard, entry }: StoredTensor,
  { row, column, rows, columns }: MatrixRegion,
): Promise<Float32Array> {
  const { bits } = FILE_DTYPES[entry.dtype];
  const width = entry.shape.at(-1) ?? 1;
  const values = new Float32Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    const { offset, begin, end } = bytesOfCodes((row + r) * width + column, columns, bits);
    const bytes = await shard.read(entry, begin, end);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let c = 0; c < columns; c++) {
      const [realPart] = partsOf(entry.dtype, codeAt(view, bits, offset + c));
      values[r * columns + c] = Number(realPart);
    }
  }
  return values;
}

/** The code of an element. Codes of 4 and 6 bits are packed from the low bits up. */
function codeAt(view: DataView, bits: number, index: number): bigint {
  if (bits === 64) return view.getBigUint64(8 * index, true);
  if (bits === 32) return BigInt(view.getUint32(4 * index, true));
  if (bits === 16) return BigInt(view.getUint16(2 * index, true));
  const bit = index * bits;
  const byte = bit >> 3;
  const next = byte + 1 < view.byteLength ? view.getUint8(byte + 1) : 0;
  return BigInt(((view.getUint8(byte) | (next << 8)) >> (bit & 7)) & (2 ** bits - 1));
}
