/** The SIMD loops of the casts equal the scalar loop. */
import * as fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { Heap } from "../../../../src/backends/wasm/heap.js";
import { type Instance, openInstance } from "../../../../src/backends/wasm/instance.js";
import { Pool } from "../../../../src/backends/wasm/pool.js";
import { OVERFLOW, ROUNDING, WIDE } from "../../../../src/formats/contract.gen.js";
import { factsOf, formatWord, SCALAR_FORMAT_NAMES } from "../../../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../../../src/formats/scalar.js";
import { OVERFLOWS, ROUNDINGS, rounding, scalarLayout } from "../../../arbitraries/formats.js";
import { patternFor } from "../../../arbitraries/patterns.js";
import { draws } from "../../harness/draws.js";

const COUNT = 1 << 16;
const DRAWS = { seedLo: 0x89abcdef, seedHi: 0x01234567, offsetLo: 11, offsetHi: 7, copy: 1 };

let kernel: Instance;
let pool: Pool;
let [source, simdCodes, scalarCodes] = [0, 0, 0];

beforeAll(async () => {
  kernel = await openInstance();
  const reserve = (bytes: number): number => kernel.exports.reserve(bytes) >>> 0;
  [source, simdCodes, scalarCodes] = [reserve(4 * COUNT), reserve(4 * COUNT), reserve(4 * COUNT)];
  pool = await Pool.open(kernel, new Heap(kernel), 1);
});

function writePatterns(patterns: ArrayLike<number>): void {
  new Uint32Array(kernel.memory.buffer, source, patterns.length).set(patterns);
}

/** The bytes of `count` codes from either loop; `cut` divides the work into two calls. */
function codesOf(
  loop: "encode" | "encodeScalar",
  word: number,
  [rounding, overflow, scale]: readonly [rounding: number, overflow: number, scale: number],
  count: number,
  cut = 0,
): Uint8Array {
  const target = loop === "encode" ? simdCodes : scalarCodes;
  new Uint8Array(kernel.memory.buffer, target, 4 * count).fill(0xa5);
  const policy = { rounding, overflow, scale };
  for (const [begin, end] of [
    [0, cut],
    [cut, count],
  ] as const) {
    const job = { first: begin, total: end - begin };
    pool.run(loop, job, { src: source, srcType: WIDE.f32, dst: target, word, ...policy, draws: DRAWS });
  }
  return new Uint8Array(kernel.memory.buffer, target, 4 * count).slice();
}

describe("encode", () => {
  it("equals the element-wise loop for every layout, rounding, overflow, scale and partition", () => {
    const scale = fc.oneof(fc.constantFrom(1, 1, 0, 448, 2 ** -127, Infinity), fc.float({ noNaN: true }));
    const cases = scalarLayout().chain((layout) =>
      fc.record({
        layout: fc.constant(layout),
        mode: rounding(),
        overflow: fc.constantFrom(...OVERFLOWS),
        scale,
        patterns: fc.array(patternFor(layout), { minLength: 1, maxLength: 150 }),
        cut: fc.nat(20),
      }),
    );
    fc.assert(
      fc.property(cases, ({ layout, mode, overflow, scale: factor, patterns, cut }) => {
        writePatterns(patterns);
        const policy = [ROUNDING[mode], OVERFLOW[overflow], factor] as const;
        const word = formatWord(layout);
        const cutIndex = Math.min(8 * cut, patterns.length & ~7);
        const codes = codesOf("encode", word, policy, patterns.length, cutIndex);
        expect(codes).toEqual(codesOf("encodeScalar", word, policy, patterns.length));
      }),
      { numRuns: draws(400) },
    );
  });

  // blocks of f32 patterns: both zeros, subnormals, the binades of the format's limits, infinities and NaNs
  it.each(SCALAR_FORMAT_NAMES)("equals the element-wise loop on whole blocks of patterns: %s", (format) => {
    const { max, minPositive, minNormal } = factsOf(format);
    const high = (value: number): number => new Uint32Array(Float32Array.of(value).buffer)[0]! >>> 16;
    const blocks = [
      0,
      0x7f,
      0x80,
      high(minPositive / 2),
      high(minNormal),
      high(max),
      high(max) + 1,
      0x7f7f,
      0x7f80,
    ];
    const word = formatWord(SCALAR_FORMATS[format]);
    for (const block of blocks) {
      const sign = block % 2 === 0 ? 0 : 0x80000000;
      writePatterns(
        Uint32Array.from({ length: COUNT / 4 }, (_, i) => ((block << 16) | (i * 4 + (i & 3))) + sign),
      );
      for (const mode of ROUNDINGS) {
        for (const overflow of OVERFLOWS) {
          const policy = [ROUNDING[mode], OVERFLOW[overflow], 1] as const;
          const codes = codesOf("encode", word, policy, COUNT / 4);
          const isEqual = Buffer.compare(codes, codesOf("encodeScalar", word, policy, COUNT / 4)) === 0;
          expect(isEqual, `${mode} ${overflow} block ${block.toString(16)}`).toBe(true);
        }
      }
    }
  });

  it("handles a NaN anywhere in a run, next to values far beyond the format", () => {
    fc.assert(
      fc.property(
        fc.nat(4999),
        fc.constantFrom("e4m3", "e2m1", "e5m2", "bf16", "f16"),
        (nanIndex, format) => {
          const patterns = new Uint32Array(5000).fill(0x3fc00000);
          patterns[nanIndex] = 0xffc00001;
          patterns[(nanIndex + 7) % 5000] = 0x7f000000;
          patterns[(nanIndex + 8) % 5000] = 0xff800000;
          writePatterns(patterns);
          const word = formatWord(SCALAR_FORMATS[format]);
          const policy = [ROUNDING.tiesToEven, OVERFLOW.saturate, 1] as const;
          const codes = codesOf("encode", word, policy, 5000);
          expect(Buffer.compare(codes, codesOf("encodeScalar", word, policy, 5000))).toBe(0);
        },
      ),
      { numRuns: draws(60) },
    );
  });
});
