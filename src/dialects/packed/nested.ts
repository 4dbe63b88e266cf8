/** Packed layouts of 256 elements with two levels of scales: the K-quants of ggml. */
import type { Block, Decode } from "./block.js";
import { IQ4_VALUES } from "./codebooks.js";

const { fround } = Math;

const q2: Decode = (block, put) => {
  const [scale, minimum] = [block.f16(80), block.f16(82)];
  for (let i = 0; i < 256; i++) {
    const bits = block.u8(i >>> 4);
    const code = (block.u8(16 + 32 * (i >>> 7) + (i & 31)) >>> (2 * ((i >>> 5) & 3))) & 3;
    put(i, fround(fround(fround(scale * (bits & 15)) * code) - fround(minimum * (bits >>> 4))));
  }
};

/** Reads scale `part` of 16 from 12 bytes: four bits from the first eight bytes, and two from the last four. */
function sixBits(block: Block, at: number, part: number): number {
  const low = (block.u8(at + (part & 7)) >>> (part < 8 ? 0 : 4)) & 15;
  const high = (block.u8(at + 8 + (part & 3)) >>> (2 * (part >>> 2))) & 3;
  return low | (high << 4);
}

const q3: Decode = (block, put) => {
  const scale = block.f16(108);
  for (let i = 0; i < 256; i++) {
    const partScale = fround(scale * (sixBits(block, 96, i >>> 4) - 32));
    const low = (block.u8(32 + 32 * (i >>> 7) + (i & 31)) >>> (2 * ((i >>> 5) & 3))) & 3;
    const high = (block.u8(i & 31) >>> (i >>> 5)) & 1;
    put(i, fround(partScale * (low - (high ? 0 : 4))));
  }
};

/** Reads the scale and the minimum of part 0 to 7 from 12 bytes, six bits each. */
function scaleAndMinimum(
  block: Block,
  address: number,
  part: number,
): readonly [scale: number, minimum: number] {
  if (part < 4) return [block.u8(address + part) & 63, block.u8(address + part + 4) & 63];
  const lowBits = block.u8(address + part + 4);
  return [
    (lowBits & 15) | ((block.u8(address + part - 4) >>> 6) << 4),
    (lowBits >>> 4) | ((block.u8(address + part) >>> 6) << 4),
  ];
}

/** 4-bit codes, where byte j of 32 holds elements j and j + 32; 5-bit codes have their fifth bits in 32 separate bytes. */
function pairs(codes: number, fifth?: number): Decode {
  return (block, put) => {
    const [scale, minimum] = [block.f16(0), block.f16(2)];
    for (let part = 0; part < 8; part++) {
      const [partScale, partMinimum] = scaleAndMinimum(block, 4, part);
      const [step, offset] = [fround(scale * partScale), fround(minimum * partMinimum)];
      for (let i = 0; i < 32; i++) {
        const low = (block.u8(codes + 32 * (part >>> 1) + i) >>> (4 * (part & 1))) & 15;
        const high = fifth === undefined ? 0 : (block.u8(fifth + i) >>> part) & 1;
        put(32 * part + i, fround(fround(step * (low | (high << 4))) - offset));
      }
    }
  };
}

const q6: Decode = (block, put) => {
  const scale = block.f16(208);
  for (let i = 0; i < 256; i++) {
    const [half, quarter, at] = [i >>> 7, (i >>> 5) & 3, i & 31];
    const low = (block.u8(64 * half + 32 * (quarter & 1) + at) >>> (4 * (quarter >>> 1))) & 15;
    const high = (block.u8(128 + 32 * half + at) >>> (2 * quarter)) & 3;
    const partScale = fround(scale * block.i8(192 + (i >>> 4)));
    put(i, fround(partScale * ((low | (high << 4)) - 32)));
  }
};

const iq4: Decode = (block, put) => {
  const [scale, highs] = [block.f16(0), block.u16(2)];
  for (let i = 0; i < 256; i++) {
    const part = i >>> 5;
    const low = (block.u8(4 + (part >>> 1)) >>> (4 * (part & 1))) & 15;
    const partScale = fround(scale * ((low | (((highs >>> (2 * part)) & 3) << 4)) - 32));
    const code = (block.u8(8 + 16 * part + (i & 15)) >>> (i & 16 ? 4 : 0)) & 15;
    put(i, fround(partScale * (IQ4_VALUES[code] as number)));
  }
};

/** The layouts by their names. */
export const NESTED_LAYOUTS = {
  q2_k: q2,
  q3_k: q3,
  q4_k: pairs(16),
  q5_k: pairs(48, 16),
  q6_k: q6,
  iq4_xs: iq4,
} as const satisfies Record<string, Decode>;
