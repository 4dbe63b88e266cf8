/** Laws of `amax` without a reference: they plant the maximum and vary its position. */
import * as fc from "fast-check";
import { anIndex, indexIn } from "../arbitraries/matrices.js";
import { narrowed } from "../arbitraries/patterns.js";
import { wideType } from "../arbitraries/wide.js";
import { MismatchError } from "../values/difference.js";
import { fromCodes, wideValues } from "../values/plain.js";
import { type Law, law } from "./law.js";

/** Element counts: small ones, and counts just above a vector, a chunk or a thread block. */
const counts = fc.oneof(
  fc.integer({ min: 1, max: 70 }),
  fc.constantFrom(256, 1024, 2048, 4096, 8192, 32_768).chain((n) => fc.integer({ min: n - 9, max: n + 9 })),
);

const oneNumber = law(
  { name: "the amax of zeros and one number is that number, wherever it lies", operation: "amax" },
  fc.record({
    dtype: wideType(),
    count: counts,
    index: anIndex(),
    negative: fc.boolean(),
    exponent: fc.integer({ min: -14, max: 15 }),
  }),
  async (subject, { dtype, count, index, negative, exponent }) => {
    const codes = new Uint32Array(count);
    const position = indexIn(index, count);
    codes[position] = narrowed((((exponent + 127) << 23) | (negative ? 0x80000000 : 0)) >>> 0, dtype);
    const answer = await subject.amax?.({ x: fromCodes(dtype, [count], codes) });
    if (!answer?.amax) return;
    const [actual] = wideValues(fromCodes("f32", [1], answer.amax.codes));
    if (actual !== 2 ** exponent)
      throw new MismatchError(
        `of ${count} numbers number ${position} is ${2 ** exponent}; the amax is ${actual}`,
      );
  },
);

export const AMAX_LAWS: readonly Law[] = [oneNumber];
