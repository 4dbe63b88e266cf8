/** The operation `hadamard`: each 16 rows of a column pass through one tensor-core step; the last 16 are padded with zeros. */
import * as fc from "fast-check";
import { hadamard, RHT_SIGNS } from "../../../src/ops/quantize/hadamard.js";
import { specialPattern } from "../../arbitraries/patterns.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { rht16 } from "../../oracle/quantize/hadamard.js";
import { download, fromCodes, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import type { Operation } from "../operation.js";

/** One input of the operation `hadamard`, as plain data. */
export interface HadamardCase {
  /** The input, [M, K]. */
  readonly x: PlainTensor<"bf16">;
  /** The sign mask: none, or the default. */
  readonly signs: 0 | typeof RHT_SIGNS;
}

/**
 * Chunks in which large elements cancel, so that the small ones show how many bits below the largest the sum keeps. Large
 * elements are powers of two with the biased exponent `top`; small elements are at most `depth` exponents below it.
 */
function cancelling(seed: number, count: number, top: number, depth: number): number[] {
  const next = splitmix32(seed);
  return Array.from({ length: count }, () => {
    const word = next();
    const low = (word & 3) !== 0;
    const exponent = Math.max(top - (low ? depth - ((word >>> 8) % 4) : 0), 0);
    return ((word >>> 16) & 0x8000) | (exponent << 7) | (low ? (word >>> 2) & 0x7f : 0);
  });
}

function hadamardCase(): fc.Arbitrary<HadamardCase> {
  return fc
    .record({
      chunks: fc.integer({ min: 0, max: 3 }),
      missing: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 15 })),
      columns: fc.oneof(fc.integer({ min: 0, max: 5 }), fc.constantFrom(17, 33)),
      seed: fc.nat(),
      top: fc.oneof(fc.constant(127), fc.integer({ min: 0, max: 254 })),
      depth: fc.oneof(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 22, max: 28 })),
      plants: fc.array(fc.tuple(fc.nat(), specialPattern()), { maxLength: 2 }),
      signs: fc.constantFrom(0, RHT_SIGNS),
    } as const)
    .map(({ chunks, missing, columns, seed, top, depth, plants, signs }) => {
      const rows = Math.max(16 * chunks - missing, 0);
      const codes = cancelling(seed, rows * columns, top, depth);
      for (const [at, bits] of codes.length > 0 ? plants : []) codes[at % codes.length] = bits >>> 16;
      return { x: fromCodes("bf16", [rows, columns], codes), signs };
    });
}

export const hadamardOperation: Operation<HadamardCase> = {
  arbitrary: hadamardCase(),
  run: (backend, { x, signs }) => ({ out: download(hadamard(upload(backend, x), signs)) }),
  oracle({ x, signs }) {
    const [rows, columns] = x.matrix;
    const values = wideValues(x);
    const length = 16 * Math.ceil(rows / 16);
    const out = new Uint16Array(length * columns);
    for (let column = 0; column < columns; column++) {
      for (let top = 0; top < rows; top += 16) {
        const chunk = Array.from({ length: 16 }, (_, i) => values[(top + i) * columns + column] ?? 0);
        out.set(rht16(chunk, signs !== 0), column * length + top);
      }
    }
    return { out: fromCodes("bf16", [columns, length], out) };
  },
};
