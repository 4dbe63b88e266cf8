/** Values of packed blocks that are NaN or infinite, found by the scales of the blocks. */
import { dequantizePacked, PACKED_LAYOUTS, type PackedLayoutName } from "./packed.js";

/** Whether the values of the block at an offset may be NaN or infinite; if not, all are finite. */
type Test = (bytes: Uint8Array, at: number) => boolean;

/** Scales in f16 at these offsets of a block. The products and sums of finite ones with codes are within the range of f32. */
const halves =
  (...offsets: readonly number[]): Test =>
  (bytes, at) =>
    offsets.some((offset) => ((bytes[at + offset + 1] as number) & 0x7c) === 0x7c);

/** A scale in f32 at the beginning, from which on integers of 8 bits may make it infinite. */
const float: Test = (bytes, at) => ((bytes[at + 3] as number) & 0x7f) >= 0x78;

/** The four bits of a scale in f16 are the upper ones of four words. */
const scattered: Test = (bytes, at) =>
  ((bytes[at + 53] as number) & 0xc0) === 0xc0 && ((bytes[at + 55] as number) & 0x70) === 0x70;

/** The test of each layout that has a scale for all of a block; of the others, every block is decoded. */
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

/** The number of values of whole packed blocks that are NaN or infinite in f32. Decodes only blocks whose scales allow it. */
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
