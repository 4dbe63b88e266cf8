/** Declarations of arguments that calls of several families share. */

import { bounded, group, updates, writes } from "./native-arguments.js";

/** The size of a matrix. */
export const SIZE = { rows: "count", columns: "count" } as const;

const RANDOM_WORDS = { seedLow: "word", seedHigh: "word", offsetLow: "word", offsetHigh: "word" } as const;

/** A random source as four 32-bit words. See lowering.ts and native/core/random.h. */
export const RANDOM = { random: group("RandomSource", RANDOM_WORDS) } as const;

/** As `RANDOM`, for kernels that take the Philox generator in place of the source. */
export const PHILOX = { random: group("Philox", RANDOM_WORDS) } as const;

const extent = bounded({ type: "uint64_t" });

/** The position of a matrix in a larger one. The fields have the names and meanings of the fields of `MatrixPart`. */
export const PART = {
  "part?": group("MatrixPart", {
    rows: extent,
    columns: extent,
    row: extent,
    column: extent,
    width: extent,
    stride: extent,
    units: {
      condition: "width != 0 && (rows | columns | row | column | width | stride) % 16 == 0",
      message: "part has a size that is no multiple of 16",
    },
  }),
} as const;

/** Block scales of `bytes` bytes each (in C++), and their layout. See tensor/geometry.ts and native/layout/placement.h. */
export function scales(bytes: string) {
  const placement = {
    bytes: "count",
    lines: "count",
    blocks: "count",
    lineStride: "count",
    blockStride: "count",
    swizzled: "flag",
  } as const;
  return group("ScalePlacement", { data: updates.bytes("placement.bytes"), placement }, bytes);
}

/**
 * A quantized copy of a matrix: codes, and block scales of `bytes` bytes each. A columnwise copy is [columns, rows] unless the
 * quantizer says otherwise.
 */
export function quantizedCopy(element: "u8" | "u4" | "storage", bytes: string) {
  const codes = writes[element]("rows * columns", "Null if the copy is not wanted.");
  return group("QuantizedCopy", { codes, scales: scales(bytes) });
}

export const CLAMP = { alpha: "float", limit: "float", offset: "float" } as const;
