/** Scales of ggml's blocks: half of what their bytes say elsewhere, because its table of codes is doubled. */
import { valueOfCode } from "../../../formats/derive.js";

const BYTES = { length: 256 } as const;
/** The bias of e8m0, and one more for the half. No byte is NaN. */
const HALF_BIAS = 128;
const MAGNITUDE = 0x7f;

/** Of e8m0: 2^(byte - 128). */
export const E8M0_HALVES = Float32Array.from(BYTES, (_, byte) => 2 ** (byte - HALF_BIAS));

/** Of e4m3 without a sign: bit 7 is ignored, 0x7F is 0, and 0xFF is 240. */
export const UE4M3_HALVES = Float32Array.from(BYTES, (_, byte) => {
  if (byte === MAGNITUDE) return 0;
  const magnitude = byte & MAGNITUDE;
  return (magnitude === MAGNITUDE ? 480 : valueOfCode("e4m3", magnitude)) / 2;
});
