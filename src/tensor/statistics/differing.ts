/** The elements of two chunks of bytes that differ. */
import { alignBytes } from "../data.js";

/**
 * Calls `report` with the index of each element, of `unit` bytes, whose bits differ, in their order. Bytes are compared four at a
 * time, because few elements differ as a rule.
 */
export function eachDiffering(
  a: Uint8Array,
  b: Uint8Array,
  unit: 1 | 2 | 4 | 8,
  report: (index: number) => void,
): void {
  const words = a.length >> 2;
  const x = asWords(a);
  const y = asWords(b);
  for (let i = 0; i < words; i++) {
    const p = x[i] as number;
    const q = y[i] as number;
    if (p === q) continue;
    if (unit === 4) report(i);
    else if (unit < 4) eachIn(p ^ q, i * 4, unit, report);
    // the second half of an element is passed over where the first one differs
    else if (i % 2 === 0 || x[i - 1] === y[i - 1]) report(i >> 1);
  }
  let rest = 0;
  for (let offset = words * 4; offset < a.length; offset++)
    rest |= ((a[offset] as number) ^ (b[offset] as number)) << (8 * (offset % 4));
  if (rest !== 0) eachIn(rest, words * 4, unit, report);
}

/** Calls `report` with the index of each element that has a bit set in `bits`, the 32 bits at byte `offset`. */
function eachIn(bits: number, offset: number, unit: 1 | 2 | 4 | 8, report: (index: number) => void): void {
  const mask = unit === 1 ? 0xff : 0xffff;
  for (let rest = bits; rest !== 0; ) {
    const lowest = ((31 - Math.clz32(rest & -rest)) >> 3) & -unit;
    report(unit === 1 ? offset + lowest : (offset + lowest) >> 1);
    rest &= ~(mask << (8 * lowest));
  }
}

function asWords(bytes: Uint8Array): Int32Array {
  const { buffer, byteOffset, length } = alignBytes(bytes, 4);
  return new Int32Array(buffer, byteOffset, length >> 2);
}

/** Codes of one width. */
export type Codes = Uint8Array | Uint16Array | Uint32Array;

/** The codes in bytes, little endian. */
export function codesOf(bytes: Uint8Array, bits: 8 | 16 | 32 | 64): Codes {
  if (bits === 8) return bytes;
  const { buffer, byteOffset, length } = alignBytes(bytes, bits / 8);
  if (bits === 16) return new Uint16Array(buffer, byteOffset, length / 2);
  return new Uint32Array(buffer, byteOffset, length / 4);
}
