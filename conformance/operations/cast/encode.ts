/** encode: wide values to codes. */
import * as fc from "fast-check";
import type { OverflowName, RoundingName } from "../../../src/backends/ops.js";
import type { ScalarFormat, ScalarLayout } from "../../../src/formats/scalar.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { instance } from "../../../src/options.js";
import type { RandomSource } from "../../../src/random.js";
import { elementCount, type Shape, storageBits, type WideDType } from "../../../src/tensor/shape.js";
import { format, overflow, randomSource, rounding } from "../../arbitraries/formats.js";
import { narrowed, patternFor } from "../../arbitraries/patterns.js";
import { words } from "../../arbitraries/random.js";
import { random16 } from "../../oracle/core/philox.js";
import { mul } from "../../oracle/core/rational.js";
import * as oracle from "../../oracle/core/scalar.js";
import { download, fromCodes, type PlainTensor, pack, upload, wideValues } from "../../values/plain.js";
import { bitsOf, layoutOf, storageBitsOf } from "../../values/values.js";
import type { Answer, Operation } from "../operation.js";

/** A call of `encode`: codes = x * scale, rounded once. */
export interface EncodeCase {
  /** The input values. */
  readonly x: PlainTensor<WideDType>;
  /** The format of the codes. */
  readonly format: ScalarFormat | ScalarLayout;
  /** How a value between two codes is rounded. */
  readonly rounding: RoundingName;
  /** What happens to values beyond the largest finite one. */
  readonly overflow: OverflowName;
  /** Seed and offset, which stochastic rounding uses. */
  readonly random: RandomSource;
  /** Random bits for stochastic rounding instead of a seed: one word for each element. */
  readonly randomBits?: PlainTensor<"u32"> | undefined;
  /** The factor that multiplies x before rounding. */
  readonly scale: number;
}

/** A tensor of codes in a shape that the format accepts: rows have even length if two codes share a byte. */
function shaped(
  codes: readonly number[],
  dtype: WideDType,
  columns: number,
  target: ScalarFormat | ScalarLayout,
) {
  const even = storageBitsOf(target) === 4;
  const usable = even ? codes.slice(0, codes.length - (codes.length % 2)) : codes;
  const step = even ? 2 * columns : columns;
  const shape = usable.length % step === 0 ? [usable.length / step, step] : [usable.length];
  return fromCodes(
    dtype,
    shape,
    usable.map((bits) => narrowed(bits, dtype)),
  );
}

/** One word for each element, drawn from `seed`. A third of them are next to words at which fractions of few bits round up. */
function givenWords(shape: Shape, seed: number): PlainTensor<"u32"> {
  const drawn = words(seed | 0, elementCount(shape));
  const codes = drawn.map((word) => (word % 3 === 0 ? ((word >>> 8) << 24) - ((word >>> 4) & 1) : word));
  return fromCodes("u32", shape, codes);
}

const arbitrary = instance(fc.Arbitrary, "an arbitrary of fast-check");

/** Calls with patterns aimed at `target`, or at a drawn format. Throws `ArgumentError` if `target` is not an arbitrary. */
export function encodeCase(
  target: fc.Arbitrary<ScalarFormat | ScalarLayout> = format(),
): fc.Arbitrary<EncodeCase> {
  arbitrary("encodeCase", "target", target);
  return target.chain((to) =>
    fc
      .record({
        patterns: fc.array(patternFor(layoutOf(to)), { maxLength: 80 }),
        columns: fc.integer({ min: 1, max: 4 }),
        dtype: fc.oneof(
          { weight: 3, arbitrary: fc.constant("f32") },
          fc.constantFrom("bf16", "f16"),
        ) as fc.Arbitrary<WideDType>,
        rounding: rounding(),
        overflow: overflow(),
        random: randomSource(),
        wordsSeed: fc.option(fc.nat(), { nil: undefined }),
        scale: fc.oneof(
          { weight: 4, arbitrary: fc.constant(1) },
          fc.constantFrom(0.5, 3, -1, 2 ** -126, 2 ** 100),
          fc.float({ noNaN: true }),
        ),
      })
      .map(({ patterns, columns, dtype, wordsSeed, ...rest }): EncodeCase => {
        const x = shaped(patterns, dtype, columns, to);
        const isGiven = rest.rounding === "stochastic" && wordsSeed !== undefined;
        return { x, format: to, ...(isGiven ? { randomBits: givenWords(x.shape, wordsSeed) } : {}), ...rest };
      }),
  );
}

export const encodeOperation: Operation<EncodeCase> = {
  arbitrary: encodeCase(),
  run(backend, { x, random, randomBits: callerWords, ...options }) {
    // words, like seeds, are only allowed with stochastic rounding
    const randomBits =
      callerWords && options.rounding === "stochastic" ? upload(backend, callerWords) : undefined;
    return { codes: raw(download(encode(upload(backend, x), { ...options, ...random, randomBits }))) };
  },
  oracle({ x, format: to, rounding: mode, overflow: policy, random, randomBits, scale }): Answer {
    const layout = layoutOf(to);
    const values = wideValues(x);
    const patterns =
      scale === 1
        ? new Uint32Array(values.buffer, values.byteOffset, values.length)
        : values.map((value) => mul(value, scale));
    const codes = Array.from(patterns, (pattern, i) => {
      const bits = scale === 1 ? pattern : bitsOf(pattern);
      if (randomBits && mode === "stochastic")
        return oracle.encodeByWord(bits, layout, policy, randomBits.codes[i] as number);
      const word = mode === "stochastic" ? random16(random.seed, random.offset, 0, BigInt(i)) : 0;
      return oracle.encode(bits, layout, mode, policy, word);
    });
    return { codes: stored(codes, to, x.shape) };
  },
};

/**
 * Codes as untyped storage (u8, u16 or u32): the comparison then distinguishes NaN codes too, because encoding defines
 * every bit.
 */
export function stored(
  codes: readonly number[],
  format: ScalarFormat | ScalarLayout,
  shape: Shape,
): PlainTensor {
  const bits = storageBitsOf(format);
  if (bits === 4) return fromCodes("u8", packedShape(shape), pack(codes));
  return fromCodes(bits === 8 ? "u8" : bits === 16 ? "u16" : "u32", shape, codes);
}

/** The stored bytes or words of a tensor of codes, without its type. */
function raw(x: PlainTensor): PlainTensor {
  const { buffer, byteOffset, byteLength } = x.data;
  if (storageBits(x.dtype) === 4)
    return fromCodes("u8", packedShape(x.shape), new Uint8Array(buffer, byteOffset, byteLength));
  const dtype = x.data.BYTES_PER_ELEMENT === 1 ? "u8" : x.data.BYTES_PER_ELEMENT === 2 ? "u16" : "u32";
  return fromCodes(dtype, x.shape, x.codes);
}

function packedShape(shape: Shape): Shape {
  return [...shape.slice(0, -1), (shape.at(-1) ?? 1) / 2];
}
