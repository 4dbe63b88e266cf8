/**
 * Every scale rule and element scaling of block formats on a GPU: blocks with each of the 2^16 amaxes that bf16 and f16 have, and
 * with those around each step of the rules in f32. Per-tensor formats share the functions of blocks.
 */
import { describe, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { blockFormat, quantizersWith, tileSize } from "../../../src/formats/block.js";
import { SCALE_RULES } from "../../../src/formats/scale-rules.js";
import { makeSpec } from "../../../src/quantizers/quantizer.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { backendSubject } from "../../operations/operations.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { bitsOf } from "../../values/values.js";
import { describeOnGpu, SEED, useGpu } from "../harness/gpu/gpu.js";

const INFINITY = 0x7f800000;
const ROWWISE = { rowwise: true, columnwise: false } as const;
const SIXTEEN = Array.from({ length: 1 << 16 }, (_, code) => code);

/** The rules of blocks with each format and scaling. */
const SPECS: readonly QuantizeSpec[] = quantizersWith("scaleRule")
  .filter((name) => blockFormat(name).scaleSource === "blocks")
  .flatMap((name) =>
    blockFormat(name).rules.flatMap((scaleRule) =>
      SCALE_RULES[scaleRule].scalings.flatMap((elementScaling) =>
        blockFormat(name).elements.map((format) => makeSpec(name, { scaleRule, elementScaling, format })),
      ),
    ),
  );

/** f32 amaxes around powers of two times few-bit numbers, where exponents, roundings and logarithms change. */
const STEPS: readonly number[] = [1, 1.125, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875].flatMap((mantissa) =>
  Array.from({ length: 277 }, (_, i) => bitsOf(Math.fround(mantissa * 2 ** (i - 149)))).flatMap((bits) =>
    Array.from({ length: 65 }, (_, i) => Math.min(Math.max(bits + i - 32, 0), INFINITY)),
  ),
);

/**
 * A block for each amax, which stands at changing places. Its other elements are as large, half as large or smaller, of any
 * mantissa and sign.
 */
function blocksOf(amaxes: readonly number[], dtype: WideDType, block: number): PlainTensor<WideDType> {
  const [mantissa, width] = { f32: [23, 32], bf16: [7, 16], f16: [10, 16] }[dtype] as [number, number];
  const sign = 2 ** (width - 1);
  const rows = Math.ceil(amaxes.length / 32) * 32;
  const codes = words(SEED, rows * block);
  for (let r = 0; r < rows; r++) {
    const amax = amaxes[r % amaxes.length] as number;
    const magnitude = amax % sign;
    for (let i = r * block; i < (r + 1) * block; i++) {
      const word = codes[i] as number;
      const below = (word >>> 8) % 2 ** (mantissa + 1 + (word % 3));
      codes[i] = Math.max(magnitude - below, 0) + (word % 2) * sign;
    }
    codes[r * block + (r % block)] = amax;
  }
  return fromCodes(dtype, [rows, block], codes);
}

const drawn = new Map<string, PlainTensor<WideDType>>();

/** The blocks of a type; they are created once. */
function matrixOf(dtype: WideDType, block: number): PlainTensor<WideDType> {
  const key = `${dtype} ${block}`;
  const made = drawn.get(key) ?? blocksOf(dtype === "f32" ? STEPS : SIXTEEN, dtype, block);
  drawn.set(key, made);
  return made;
}

describeOnGpu("scale rules and element scalings on a GPU", () => {
  const { gpu, reference } = useGpu();

  describe.each(WIDE_DTYPES)("of %s", (dtype) => {
    for (const spec of SPECS) {
      const { quantizer, format, scaleRule, elementScaling, tile } = spec;
      it(`${quantizer} ${format} ${scaleRule} ${elementScaling}`, () => {
        const [, block] = tileSize(tile);
        const given = {
          usage: ROWWISE,
          scaleLayout: "logical",
          random: { seed: 0n, offset: 0n },
          scale: 1,
        } as const;
        const input = { ...given, spec, x: matrixOf(dtype, block) };
        const [ours, theirs] = [gpu(), reference()].map((backend: Backend) =>
          backendSubject(backend).quantize(input),
        );
        assertSameAnswer(ours as never, theirs as never);
      });
    }
  });
});
