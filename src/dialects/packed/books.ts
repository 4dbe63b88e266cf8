/** Packed layouts of 256 elements whose codes index a codebook. The signs are stored separately. */
import { type Block, type Decode, halfOf } from "./block.js";
import { CODEBOOKS } from "./codebooks.js";

const { fround } = Math;

/** The sign bits of eight elements from seven: the number of negative elements is even. */
const SIGNS = Uint8Array.from({ length: 128 }, (_, bits) => {
  let odd = 0;
  for (let rest = bits; rest > 0; rest >>>= 1) odd ^= rest & 1;
  return bits | (odd << 7);
});

/** Eight elements: their codebook entries, signs, and scale. */
interface Eight {
  readonly scale: number;
  readonly signs: number;
  /** One codebook entry of eight values, or two of four. */
  readonly entries: readonly number[];
}

/** A layout of 32 groups of eight elements. */
function eights(book: Float32Array, width: 4 | 8, of: (block: Block, group: number) => Eight): Decode {
  return (block, put) => {
    for (let group = 0; group < 32; group++) {
      const { scale, signs, entries } = of(block, group);
      for (let i = 0; i < 8; i++) {
        const entry = entries[width === 4 ? i >>> 2 : 0] as number;
        const value = fround(scale * (book[entry * width + (i % width)] as number));
        put(8 * group + i, (signs >>> i) & 1 ? -value : value);
      }
    }
  };
}

/** A scale from four bits: an odd multiple of a half, times `factor`. */
const stepped = (scale: number, bits: number, factor: number): number =>
  fround(fround(scale * (0.5 + bits)) * factor);

const iq2xxs = eights(CODEBOOKS.iq2xxs, 8, (block, group) => {
  const at = 2 + 8 * (group >>> 2);
  const word = block.u32(at + 4);
  return {
    scale: stepped(block.f16(0), word >>> 28, 0.25),
    signs: SIGNS[(word >>> (7 * (group & 3))) & 127] as number,
    entries: [block.u8(at + (group & 3))],
  };
});

const iq2xs = eights(CODEBOOKS.iq2xs, 8, (block, group) => {
  const word = block.u16(2 + 2 * group);
  const scales = block.u8(66 + (group >>> 2));
  return {
    scale: stepped(block.f16(0), (scales >>> (group & 2 ? 4 : 0)) & 15, 0.25),
    signs: SIGNS[word >>> 9] as number,
    entries: [word & 511],
  };
});

const iq2s = eights(CODEBOOKS.iq2s, 8, (block, group) => {
  const high = (block.u8(66 + (group >>> 2)) >>> (2 * (group & 3))) & 3;
  const scales = block.u8(74 + (group >>> 2));
  return {
    scale: stepped(block.f16(0), (scales >>> (group & 2 ? 4 : 0)) & 15, 0.25),
    signs: block.u8(34 + group),
    entries: [block.u8(2 + group) | (high << 8)],
  };
});

const iq3xxs = eights(CODEBOOKS.iq3xxs, 4, (block, group) => {
  const word = block.u32(66 + 4 * (group >>> 2));
  return {
    scale: stepped(block.f16(0), word >>> 28, 0.5),
    signs: SIGNS[(word >>> (7 * (group & 3))) & 127] as number,
    entries: [block.u8(2 + 2 * group), block.u8(3 + 2 * group)],
  };
});

const iq3s = eights(CODEBOOKS.iq3s, 4, (block, group) => {
  const high = block.u8(66 + (group >>> 2)) >>> (2 * (group & 3));
  const scales = block.u8(106 + (group >>> 3));
  const multiple = 1 + 2 * ((scales >>> (group & 4 ? 4 : 0)) & 15);
  return {
    scale: fround(block.f16(0) * multiple),
    signs: block.u8(74 + group),
    entries: [
      block.u8(2 + 2 * group) | ((high & 1) << 8),
      block.u8(3 + 2 * group) | (((high >>> 1) & 1) << 8),
    ],
  };
});

const DELTA = 0.125;

/** Writes eight values of a ternary codebook entry, each shifted by +-DELTA. */
function put8(
  put: (index: number, value: number) => void,
  group: number,
  { scale, entry, negative }: { readonly scale: number; readonly entry: number; readonly negative: boolean },
): void {
  const delta = negative ? -DELTA : DELTA;
  for (let i = 0; i < 8; i++)
    put(8 * group + i, fround(scale * ((CODEBOOKS.iq1[entry * 8 + i] as number) + delta)));
}

const iq1s: Decode = (block, put) => {
  const blockScale = block.f16(0);
  for (let group = 0; group < 32; group++) {
    const word = block.u16(34 + 2 * (group >>> 2));
    const high = (word >>> (3 * (group & 3))) & 7;
    put8(put, group, {
      scale: fround(blockScale * (2 * ((word >>> 12) & 7) + 1)),
      entry: block.u8(2 + group) | (high << 8),
      negative: word >= 0x8000,
    });
  }
};

const IQ1M = { codes: 0, highs: 32, scales: 48 } as const;

const iq1m: Decode = (block, put) => {
  const scales = [0, 1, 2, 3].map((i) => block.u16(IQ1M.scales + 2 * i)) as [number, number, number, number];
  const blockScale = halfOf(scales.reduce((bits, word, i) => bits | ((word >>> 12) << (4 * i)), 0));
  for (let group = 0; group < 32; group++) {
    const high = block.u8(IQ1M.highs + (group >>> 1)) >>> (4 * (group & 1));
    const part = group >>> 1;
    const bits = ((scales[part >>> 2] as number) >>> (3 * (part & 3))) & 7;
    put8(put, group, {
      scale: fround(blockScale * (2 * bits + 1)),
      entry: block.u8(IQ1M.codes + group) | ((high & 7) << 8),
      negative: (high & 8) !== 0,
    });
  }
};

/** The layouts by their names. */
export const BOOK_LAYOUTS = {
  iq2_xxs: iq2xxs,
  iq2_xs: iq2xs,
  iq2_s: iq2s,
  iq3_xxs: iq3xxs,
  iq3_s: iq3s,
  iq1_s: iq1s,
  iq1_m: iq1m,
} as const satisfies Record<string, Decode>;
