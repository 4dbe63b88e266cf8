/** Views of typed arrays as bytes. */

/** Returns the bytes of a view, without copying. */
export function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
