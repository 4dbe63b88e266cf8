/** Codes of four and of six bits back to back, as files and FP4 tensors store them: from the low bits of the first byte up. */

/** Unpacks 4-bit codes, one in each byte: into `codes` if it is passed, as many as it has room for. */
export function unpackFour(
  packed: Uint8Array,
  codes: Uint8Array = new Uint8Array(packed.length * 2),
): Uint8Array {
  for (let i = 0; i < packed.length; i++) {
    const byte = packed[i] as number;
    codes[2 * i] = byte & 15;
    codes[2 * i + 1] = byte >> 4;
  }
  return codes;
}

/** Packs 4-bit codes, one in each byte, into `packed`, which has half as many bytes. */
export function packFour(codes: Uint8Array, packed: Uint8Array): void {
  for (let i = 0; i < packed.length; i++)
    packed[i] = (codes[2 * i] as number) | ((codes[2 * i + 1] as number) << 4);
}

/**
 * Unpacks 6-bit codes, four in three bytes, to one in each byte: into `codes` if it is passed, as many as it has room for.
 * Bits that are missing in the last three bytes are 0.
 */
export function unpackSix(
  packed: Uint8Array,
  codes: Uint8Array = new Uint8Array(Math.floor(packed.length / 3) * 4),
): Uint8Array {
  for (let i = 0, offset = 0; offset < packed.length; i += 4, offset += 3) {
    const [a, b, c] = [packed[offset] as number, packed[offset + 1] ?? 0, packed[offset + 2] ?? 0];
    codes[i] = a & 63;
    codes[i + 1] = (a >> 6) | ((b & 15) << 2);
    codes[i + 2] = (b >> 4) | ((c & 3) << 4);
    codes[i + 3] = c >> 2;
  }
  return codes;
}

/** Packs codes of 6 bits, of which there must be a multiple of four. */
export function packSix(codes: Uint8Array): Uint8Array {
  const packed = new Uint8Array((codes.length / 4) * 3);
  for (let i = 0, offset = 0; i < codes.length; i += 4, offset += 3) {
    const [a, b] = [codes[i] as number, codes[i + 1] as number];
    const [c, d] = [codes[i + 2] as number, codes[i + 3] as number];
    packed[offset] = a | (b << 6);
    packed[offset + 1] = (b >> 2) | (c << 4);
    packed[offset + 2] = (c >> 4) | (d << 2);
  }
  return packed;
}
