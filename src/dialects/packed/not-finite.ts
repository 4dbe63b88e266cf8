/** Counts NaN and infinite values of packed blocks, by looking at the scales first. */
import { dequantizePacked, PACKED_LAYOUTS, type PackedLayoutName } from "./packed.js";

/** Whether the block at an offset may contain NaN or infinite values. If not, all its values are finite. */
type Test = (bytes: Uint8Array, at: number) => boolean;

/** Tests the f16 scales at these offsets of a block. If they are finite, products and sums with codes stay within f32. */
const halves =
  (...offsets: readonly number[]): Test =>
  (bytes, at) =>
    offsets.some((offset) => ((bytes[at + offset + 1] as number) & 0x7c) === 0x7c);

/** Tests an f32 scale at the beginning of the block: from 2^113 on, an 8-bit integer may overflow it. */
const float: Test = (bytes, at) => ((bytes[at + 3] as number) & 0x7f) >= 0x78;

/** Tests an f16 scale whose bits are the top four bits of four words. */
const scattered: Test = (bytes, at) =>
  ((bytes[at + 53] as number) & 0xc0) === 0xc0 && ((bytes[at + 55] as number) & 0x70) === 0x70;

/** The test of each layout that has a scale for the whole block. Blocks of other layouts are always decoded. */
const TESTS: Readonly<Partial<Record<PackedLayoutName, Test>>> = {
  "gguf:q4_0": halves(0),
  "gguf:q4_1": halves(0, 2),
  "gguf:q5_0": halves(0),
  "gguf:q5_1": halves(0, 2),
  "gguf:q8_0": halves(0),
  "gguf:q8_1": halves(0),
  "gguf:q2_k": halves(80, 82),
  "gguf:q3_k": halves(108),
  "gguf:q4_k": halves(0, 2),
  "gguf:q5_k": halves(0, 2),
  "gguf:q6_k": halves(208),
  "gguf:q8_k": float,
  "gguf:iq2_xxs": halves(0),
  "gguf:iq2_xs": halves(0),
  "gguf:iq3_xxs": halves(0),
  "gguf:iq1_s": halves(0),
  "gguf:iq4_nl": halves(0),
  "gguf:iq3_s": halves(0),
  "gguf:iq2_s": halves(0),
  "gguf:iq4_xs": halves(0),
  "gguf:iq1_m": scattered,
  "gguf:tq1_0": halves(52),
  "gguf:tq2_0": halves(64),
  "gguf:q1_0": halves(0),
  "gguf:q2_0": halves(0),
};

/** Counts the values of packed blocks that are NaN or infinite in f32. Decodes only blocks whose scales allow it. */
export function countNotFinite(bytes: Uint8Array, layout: PackedLayoutName): number {
  const size = PACKED_LAYOUTS[layout].bytes;
  const isDoubtful = TESTS[layout] ?? (() => true);
  let count = 0;
  for (let at = 0; at < bytes.length; at += size) {
    if (!isDoubtful(bytes, at)) continue;
    for (const value of dequantizePacked(bytes.subarray(at, at + size), layout))
      if (!Number.isFinite(value)) count++;
  }
  return count;
}
