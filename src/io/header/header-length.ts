/** The length of the header, with which a safetensors file begins. */
import { FileError } from "../../errors.js";
import { MAX_HEADER_BYTES } from "../limits.js";

/** The bytes of a length: an unsigned integer, little endian. */
export const LENGTH_BYTES = 8;

/** Throws `FileError` unless a file of `size` bytes is long enough for the length of a header. */
export function requireLength(file: string, size: number): void {
  if (size < LENGTH_BYTES)
    throw new FileError(`${file}: has ${size} bytes; a safetensors file has at least 10`);
}

/**
 * The length of the header of a file that has `size` bytes and begins with `bytes`. Throws `FileError` for an impossible length.
 */
export function headerLengthOf(file: string, bytes: Uint8Array, size: number): number {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true);
  if (length > MAX_HEADER_BYTES) {
    throw new FileError(
      `${file}: its header would have ${length} bytes; ${MAX_HEADER_BYTES} are the most; is this safetensors?`,
    );
  }
  if (Number(length) > size - LENGTH_BYTES) {
    throw new FileError(
      `${file}: its header has ${length} bytes and ${size - LENGTH_BYTES} follow; the file is truncated`,
    );
  }
  return Number(length);
}
