/** Every NaN code decodes to 0x7fffffff, bit for bit (numerics.md §1.6): in named formats and in any layout. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { derive, SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import type { ScalarFormat, ScalarLayout } from "../../../src/formats/scalar.js";
import { decode } from "../../../src/ops/cast/cast.js";
import { Scope } from "../../../src/tensor/scope.js";
import { WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import { format } from "../../arbitraries/formats.js";
import { stored } from "../../operations/cast/encode.js";
import * as oracle from "../../oracle/core/scalar.js";
import { upload } from "../../values/plain.js";
import { bitsOf, layoutOf } from "../../values/values.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

/** The bits of NaN in each type. */
const NAN: Readonly<Record<WideDType, number>> = { f32: 0x7fffffff, bf16: 0x7fff, f16: 0x7fff };

/** NaN codes of a format, up to 64 of each sign, and some other codes. */
function codesAround(source: ScalarFormat | ScalarLayout): number[] {
  const layout = layoutOf(source);
  const { bits } = derive(layout);
  const count = 2 ** bits;
  const step = Math.max(1, Math.floor(count / 4096));
  const codes = Array.from({ length: Math.min(count, 4096) }, (_, i) => (i * step + (step >> 1)) % count);
  const edges = [0, 1, 2, 3].flatMap((i) => [count - 1 - i, count / 2 - 1 - i, count / 2 + i]);
  return [...codes, ...edges.filter((code) => code >= 0 && code < count)];
}

/** Decodes codes and compares the bits of each NaN, and in f32 the bits of every value. */
function checkBits(source: ScalarFormat | ScalarLayout, codes: readonly number[], dtype: WideDType): number {
  using _scope = new Scope();
  const layout = layoutOf(source);
  const even = codes.length % 2 === 0 ? codes : [...codes, codes[0] as number];
  const out = decode(upload(backend(), stored(even, source, [even.length])), { format: layout, dtype });
  const data = out.dataSync();
  const bits = dtype === "f32" ? new Uint32Array(data.slice().buffer) : data;
  let count = 0;
  for (const [i, code] of even.entries()) {
    const value = oracle.decode(code, layout);
    if (Number.isNaN(value)) count++;
    const expected = Number.isNaN(value) ? NAN[dtype] : dtype === "f32" ? bitsOf(value) : bits[i];
    if (bits[i] !== expected) expect([code, bits[i]]).toEqual([code, expected]);
  }
  return count;
}

describe("decode", () => {
  it.each(SCALAR_FORMAT_NAMES)("%s: NaN codes of both signs and all payloads have one result", (name) => {
    for (const dtype of WIDE_DTYPES) {
      const count = checkBits(name, codesAround(name), dtype);
      expect(count > 0).toBe(derive(layoutOf(name)).hasNaN);
    }
  });

  it("of any layout, in runs of any length", () => {
    fc.assert(
      fc.property(
        format(),
        fc.integer({ min: 1, max: 4100 }),
        fc.constantFrom(...WIDE_DTYPES),
        (source, count, dtype) => {
          const codes = codesAround(source);
          checkBits(source, codes.slice(-count), dtype);
        },
      ),
      {
        numRuns: draws(100),
        examples: [
          ["bf16", 7, "f32"],
          ["f16", 5, "f32"],
          ["tf32", 3, "f32"],
        ],
      },
    );
  });
});
