/** Packed layouts with one scale for each block: the older ones of ggml, and those of one or two bits. */
import { valueOfCode } from "../../formats/derive.js";
import type { Decode } from "./block.js";
import { IQ4_VALUES } from "./codebooks.js";

const { fround } = Math;

/** 4-bit codes, where byte j of 16 holds elements j and j + 16; 5-bit codes have their fifth bits in a separate word. */
function nibbles(codes: number, value: (code: number) => number, fifth?: number): Decode {
  return (block, put) => {
    const scale = block.f16(0);
    const high = fifth === undefined ? 0 : block.u32(fifth);
    for (let i = 0; i < 32; i++) {
      const code = (block.u8(codes + (i & 15)) >>> (i < 16 ? 0 : 4)) & 15;
      put(i, fround(scale * value(code | (((high >>> i) & 1) << 4))));
    }
  };
}

/** Like `nibbles`, plus a minimum that is added to every element. */
function nibblesAbove(codes: number, fifth?: number): Decode {
  const decode = nibbles(codes, (code) => code, fifth);
  return (block, put) => {
    const minimum = block.f16(2);
    decode(block, (i, value) => put(i, fround(value + minimum)));
  };
}

/** A scale followed by signed bytes. */
const bytes =
  (count: number, codes: number, scale: "f16" | "f32"): Decode =>
  (block, put) => {
    const blockScale = block[scale](0);
    for (let i = 0; i < count; i++) put(i, fround(blockScale * block.i8(codes + i)));
  };

/** A scale followed by codes of 1 or 2 bits in the order of elements. */
const small =
  (count: number, bits: 1 | 2, values: readonly number[]): Decode =>
  (block, put) => {
    const scale = block.f16(0);
    const mask = 2 ** bits - 1;
    for (let i = 0; i < count; i++) {
      const code = (block.u8(2 + ((i * bits) >>> 3)) >>> ((i * bits) & 7)) & mask;
      put(i, fround(scale * (values[code] as number)));
    }
  };

const POWERS = [1, 3, 9, 27, 81] as const;
const TQ1 = { codes: 0, rest: 48, scale: 52 } as const;

/** Extracts a base-3 digit: multiplying by a power of three modulo 256 leaves the fraction that starts with that digit. */
function trit(byte: number, power: number): number {
  return ((((byte * power) & 255) * 3) >>> 8) - 1;
}

/** Bytes of base-3 digits: five digits in each of the first 32 and the next 16 bytes, four in each of the last four bytes. */
const tq1: Decode = (block, put) => {
  const scale = block.f16(TQ1.scale);
  let index = 0;
  const run = (from: number, width: number, digits: number): void => {
    for (let digit = 0; digit < digits; digit++)
      for (let i = 0; i < width; i++)
        put(index++, fround(trit(block.u8(from + i), POWERS[digit] as number) * scale));
  };
  run(TQ1.codes, 32, 5);
  run(TQ1.codes + 32, 16, 5);
  run(TQ1.rest, 4, 4);
};

const TQ2 = { scale: 64 } as const;

/** 2-bit codes: byte j of 32 holds elements j, j + 32, j + 64 and j + 96. */
const tq2: Decode = (block, put) => {
  const scale = block.f16(TQ2.scale);
  for (let i = 0; i < 256; i++) {
    const byte = block.u8(32 * (i >>> 7) + (i & 31));
    put(i, fround((((byte >>> (2 * ((i >>> 5) & 3))) & 3) - 1) * scale));
  }
};

/** The values of e2m1, doubled; code 8 is +0. */
const E2M1_DOUBLED = Float32Array.from({ length: 16 }, (_, code) =>
  code === 8 ? 0 : 2 * valueOfCode("e2m1", code),
);
/** The bias of an e8m0 scale, plus one because values are doubled. */
const HALF_BIAS = 128;

const mxfp4: Decode = (block, put) => {
  const scale = 2 ** (block.u8(0) - HALF_BIAS);
  for (let i = 0; i < 32; i++) {
    const code = (block.u8(1 + (i & 15)) >>> (i < 16 ? 0 : 4)) & 15;
    put(i, fround(scale * (E2M1_DOUBLED[code] as number)));
  }
};

/** Half of an unsigned e4m3 scale: 0x7F is 0, and bit 7 is ignored. */
function halfScale(byte: number): number {
  const magnitude = byte & 0x7f;
  if (byte === 0x7f) return 0;
  return (magnitude === 0x7f ? 480 : valueOfCode("e4m3", magnitude)) / 2;
}

const nvfp4: Decode = (block, put) => {
  for (let part = 0; part < 4; part++) {
    const scale = halfScale(block.u8(part));
    for (let i = 0; i < 16; i++) {
      const code = (block.u8(4 + 8 * part + (i & 7)) >>> (i < 8 ? 0 : 4)) & 15;
      put(16 * part + i, fround(scale * (E2M1_DOUBLED[code] as number)));
    }
  }
};

/** The layouts by their names. */
export const PLAIN_LAYOUTS = {
  q4_0: nibbles(2, (code) => code - 8),
  q4_1: nibblesAbove(4),
  q5_0: nibbles(6, (code) => code - 16, 2),
  q5_1: nibblesAbove(8, 4),
  q8_0: bytes(32, 2, "f16"),
  q8_1: bytes(32, 4, "f16"),
  q8_k: bytes(256, 4, "f32"),
  iq4_nl: nibbles(2, (code) => IQ4_VALUES[code] as number),
  tq1_0: tq1,
  tq2_0: tq2,
  mxfp4,
  nvfp4,
  q1_0: small(128, 1, [-1, 1]),
  q2_0: small(64, 2, [-1, 0, 1, 2]),
} as const satisfies Record<string, Decode>;
