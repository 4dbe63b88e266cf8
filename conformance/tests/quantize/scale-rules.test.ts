/** Every scale rule of the MX quantizers, over all 2^16 amaxes that bf16 has, and over those around each of its steps. */
import { describe, expect, it } from "vitest";
import {
  BLOCK_FORMATS,
  type BlockFormatName,
  blockFormat,
  quantizersWith,
} from "../../../src/formats/block.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { SCALE_RULES, type ScaleRuleName } from "../../../src/formats/scale-rules.js";
import { fromBytes } from "../../../src/ops/create.js";
import { makeSpec } from "../../../src/quantizers/quantizer.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { bitsOf, fromBits } from "../../oracle/core/rational.js";
import { E8M0_RULES } from "../../oracle/core/scale.js";
import { scoped, useBackend } from "../harness/suite.js";

const BLOCK = 32;
const LAYOUT = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;
const backend = useBackend({ threads: 2 });

type Rule = keyof typeof E8M0_RULES;

/** Every rule of an MX quantizer with each of its element formats. */
const RULES = quantizersWith("scaleRule").flatMap((quantizer) =>
  blockFormat(quantizer).rules.flatMap((rule) =>
    blockFormat(quantizer).elements.map((format) => [quantizer, rule as Rule, format] as const),
  ),
);

/** The scale codes of blocks that hold one value each, at changing places. */
function scalesOf(
  [quantizer, scaleRule, format]: readonly [BlockFormatName, ScaleRuleName, ScalarFormat],
  patterns: Uint16Array | Uint32Array,
  dtype: WideDType,
): readonly number[] {
  const blocks = patterns.length / BLOCK;
  const data =
    patterns instanceof Uint16Array
      ? new Uint16Array(patterns.length * BLOCK)
      : new Uint32Array(patterns.length * BLOCK);
  patterns.forEach((bits, i) => {
    data[i * BLOCK + (i % BLOCK)] = bits;
  });
  const x = fromBytes(backend(), new Uint8Array(data.buffer), [blocks * BLOCK, BLOCK], dtype);
  const quantizer_ = new SpecQuantizer(makeSpec(quantizer, { scaleRule, format }), LAYOUT);
  const { rowwise } = quantizer_.quantize(x as never);
  return [...(rowwise?.scaleInv.dataSync() ?? [])] as number[];
}

function wanted(rule: Rule, format: ScalarFormat, amax: number): number {
  return E8M0_RULES[rule](Number.isNaN(amax) ? 0 : Math.abs(amax), SCALAR_FORMATS[format]).stored;
}

describe("a scale rule", () => {
  it("is a row, with the scales that the quantizers of it store", () => {
    for (const name of Object.keys(BLOCK_FORMATS) as BlockFormatName[])
      for (const rule of blockFormat(name).rules)
        expect(SCALE_RULES[rule].scale).toBe(blockFormat(name).scale);
    const e8m0 = Object.entries(SCALE_RULES).flatMap(([name, { scale }]) => (scale === "e8m0" ? [name] : []));
    expect(Object.keys(E8M0_RULES).sort()).toEqual(e8m0.sort());
  });
});

describe.each(RULES)("%s %s %s", (quantizer, rule, format) => {
  scoped("gives all 65536 values of bf16 the scale of the definition", () => {
    const patterns = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
    const got = scalesOf([quantizer, rule, format], patterns, "bf16");
    const at = got.findIndex((code, i) => code !== wanted(rule, format, fromBits(i * 0x10000)));
    expect({ at, code: got[at] }).toEqual({ at: -1, code: undefined });
    expect(new Set(got).size).toBeGreaterThan(240);
  });

  scoped("changes its scale where the definition does, to the ulp of f32", () => {
    const steps: number[] = [];
    for (let e = -149; e < 128; e++) {
      for (const mantissa of [1, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875]) {
        const bits = bitsOf(Math.fround(mantissa * 2 ** e));
        for (let d = -2; d <= 2; d++) steps.push(Math.min(Math.max(bits + d, 0), 0x7f800000));
      }
    }
    while (steps.length % BLOCK !== 0) steps.push(0);
    const got = scalesOf([quantizer, rule, format], Uint32Array.from(steps), "f32");
    const at = got.findIndex((code, i) => code !== wanted(rule, format, fromBits(steps[i] as number)));
    expect({ at, bits: steps[at], code: got[at] }).toEqual({ at: -1, bits: undefined, code: undefined });
  });
});
