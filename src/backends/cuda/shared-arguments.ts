/** Declarations of arguments that calls of several families share. */

import { group } from "./native-arguments.js";

/** The size of a matrix. */
export const SIZE = { rows: "count", columns: "count" } as const;

const X = { x: "pointer", xType: "wide" } as const;
export const OUT = { out: "pointer", outType: "wide" } as const;
export const SOURCE = { ...X, ...SIZE } as const;
const RANDOM_WORDS = { seedLow: "word", seedHigh: "word", offsetLow: "word", offsetHigh: "word" } as const;

/** A random source as four 32-bit words. See lowering.ts and native/core/random.h. */
export const RANDOM = { random: group("RandomSource", RANDOM_WORDS) } as const;

/** The position of a matrix in a larger one. Names and meanings are those of `MatrixPart`. */
export const PART = {
  "part?": {
    rows: "count",
    columns: "count",
    row: "count",
    column: "count",
    width: "count",
    stride: "count",
  },
} as const;

/** Block scales and their layout. See tensor/geometry.ts and native/layout/placement.h. */
export const SCALES = {
  scales: "pointer",
  placement: {
    bytes: "count",
    lines: "count",
    blocks: "count",
    lineStride: "count",
    blockStride: "count",
    swizzled: "flag",
  },
} as const;

export const CLAMP = { alpha: "float", limit: "float", offset: "float" } as const;
export const NORM_SOURCE = {
  ...SOURCE,
  gamma: "pointer",
  "beta?": "pointer",
  parameterType: "wide",
  "mean?": "pointer",
  rstd: "pointer",
  epsilon: "float",
  zeroCentered: "flag",
} as const;

export const COPY = { codes: "pointer", ...SCALES } as const;

export const COPIES = { "rowwise?": COPY, "columnwise?": COPY } as const;

const SCALE_OUT = { "rowwiseScaleInv?": "pointer", "columnwiseScaleInv?": "pointer" } as const;

/** Copies whose scales are one f32 each, or one for each of their lines. */
export const PLAIN_COPIES = { "rowwise?": "pointer", "columnwise?": "pointer", ...SCALE_OUT } as const;

export const DELAYED = { ...SCALE_OUT, scale: "pointer", "amaxRecord?": "pointer" } as const;
