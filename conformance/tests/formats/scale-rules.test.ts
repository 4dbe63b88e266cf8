/** Every scale rule of the block quantizers, over all 2^16 amaxes of bf16, and over amaxes around each step of the rule. */
import { describe, expect, it } from "vitest";
import {
  BLOCK_FORMATS,
  type BlockFormatName,
  blockFormat,
  quantizersWith,
} from "../../../src/formats/block.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { SCALE_RULES, type ScaleRuleName, scalesZeros } from "../../../src/formats/scale-rules.js";
import { fromBytes, tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import { drawnBlock } from "../../arbitraries/matrices.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { bitsOf, FLT_MAX, fromBits } from "../../oracle/core/rational.js";
import {
  E8M0_RULES,
  f32Scale,
  halfRange,
  largest,
  QUOTIENTS,
  quotient,
  reciprocalScale,
  scaleFromAmax,
  TENSOR_RULES,
  twoLevel,
  type WideName,
} from "../../oracle/core/scale.js";
import { sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { testInScope, useBackend } from "../harness/suite.js";

const LAYOUT = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;
const backend = useBackend({ threads: 2 });

/** Every rule of a block quantizer with each of its element formats. */
const RULES = quantizersWith("scaleRule")
  .filter((quantizer) => blockFormat(quantizer).scaleSource === "blocks")
  .flatMap((quantizer) =>
    blockFormat(quantizer).rules.flatMap((rule) =>
      blockFormat(quantizer).elements.map((format) => [quantizer, rule, format] as const),
    ),
  );

/** Amaxes of tensors: the amax whose scale is 1, others on both sides of it, and amaxes whose scales underflow or overflow. */
const TENSORS = [2688, 3, 0.1, 1e5, 2 ** -149, 2 ** -126, 1e-30, 3e38].map(Math.fround);

/**
 * The stored scales, as codes or bits, of blocks that hold one value each, at varying positions. `tensorAmax` is the amax of
 * the tensor that contains the blocks, if the rule depends on it.
 */
function scalesOf(
  [name, scaleRule, format]: readonly [BlockFormatName, ScaleRuleName, ScalarFormat],
  patterns: Uint16Array | Uint32Array,
  dtype: WideDType,
  tensorAmax?: number,
): readonly number[] {
  const spec = makeSpec(name, { scaleRule, format });
  const block = drawnBlock(spec.tile);
  const multiple = Math.max(blockFormat(name).multiple, 1);
  const rows = Math.ceil(patterns.length / multiple) * multiple;
  const size = rows * block;
  const data = patterns instanceof Uint16Array ? new Uint16Array(size) : new Uint32Array(size);
  patterns.forEach((bits, i) => {
    data[i * block + (i % block)] = bits;
  });
  const x = fromBytes(backend(), new Uint8Array(data.buffer), [rows, block], dtype);
  const amax = tensorAmax === undefined ? undefined : tensor(backend(), [tensorAmax]);
  const { rowwise } = new SpecQuantizer(spec, LAYOUT, { amax }).quantize(x);
  const scales = rowwise?.scaleInv.dataSync() ?? [];
  const storedCodes =
    scales instanceof Float32Array ? Array.from(scales, bitsOf) : Array.from(scales, Number);
  return storedCodes.slice(0, patterns.length);
}

/** Bit patterns of bf16: all of them in a full run, else a sample. */
const PATTERNS = Uint16Array.from(sampleCases([...new Array(1 << 16).keys()]));

/** f32 bit patterns next to numbers with few significant bits, in each binade: scales change there. */
function stepPatterns(): Uint32Array {
  const steps: number[] = [];
  for (let exponent = -149; exponent < 128; exponent++) {
    for (const mantissa of [1, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875]) {
      const bits = bitsOf(Math.fround(mantissa * 2 ** exponent));
      for (let distance = -2; distance <= 2; distance++)
        steps.push(Math.min(Math.max(bits + distance, 0), 0x7f800000));
    }
  }
  return Uint32Array.from(steps);
}

/** The positions where an f32 logarithm stops rounding to an integer: 2^b ln 2 units around a power of two, or half as many. */
function logarithmSteps(): Uint32Array {
  const distances = [3, 5, 6, 11, 12, 22, 23, 44, 45, 88, 89].flatMap((distance) => [distance, -distance]);
  const powers = Array.from({ length: 277 }, (_, i) => bitsOf(2 ** (i - 149)));
  return Uint32Array.from(
    powers.flatMap((bits) => distances.map((distance) => Math.min(Math.max(bits + distance, 0), 0x7f800000))),
  );
}

function expectedScale(rule: ScaleRuleName, format: ScalarFormat, value: number, type: WideName): number {
  const amax = Number.isNaN(value) ? 0 : Math.abs(value);
  const layout = SCALAR_FORMATS[format];
  const max = rule === "f32QuotientRange" ? halfRange(layout) : largest(layout);
  if (isAmong(E8M0_RULES, rule)) return E8M0_RULES[rule](amax, layout).stored;
  if (isAmong(QUOTIENTS, rule)) return bitsOf(quotient(rule, amax, { max, epsilon: 0, type }));
  if (rule === "f32Reciprocal") return f32Scale(reciprocalScale(amax, { max, epsilon: 0, type })).stored;
  const overflow = type === "f32" ? FLT_MAX : fromBits(0x7f7f0000);
  return f32Scale(scaleFromAmax(amax, { max, pow2: false, epsilon: 0, overflow })).stored;
}

function isAmong<K extends string>(table: Readonly<Record<K, unknown>>, name: string): name is K {
  return Object.hasOwn(table, name);
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

describe("a block of zeros", () => {
  const codes = RULES.filter(([, rule]) => SCALE_RULES[rule].scale !== "f32");
  it.each(codes)("of %s %s %s has a scale of code 0 unless its row says otherwise", (...row) => {
    using _scope = new Scope();
    const [, rule] = row;
    const wholes = SCALE_RULES[rule].scale === "e4m3" ? [0, ...TENSORS] : [undefined];
    for (const tensorAmax of wholes) {
      const [code] = scalesOf(row, new Uint32Array(32), "f32", tensorAmax);
      expect(code === 0).toBe(!scalesZeros(rule));
    }
  });
});

const BY_TENSOR = RULES.filter(([, rule]) => SCALE_RULES[rule].scale === "e4m3");

describe.each(sampleCases(BY_TENSOR, 4))("%s %s %s", (...row) => {
  const [quantizer, rule, format] = row;
  const expected = (b: number, tensorAmax: number, type: WideName): number => {
    const amax = Number.isNaN(b) ? 0 : Math.abs(b);
    if (!isAmong(TENSOR_RULES, rule)) return twoLevel(amax, tensorAmax).stored;
    const { ofTensor, ofBlock } = TENSOR_RULES[rule];
    return ofBlock(amax, ofTensor(tensorAmax, type), type).stored;
  };

  it.each(sampleCases(TENSORS, 1, RULES.indexOf(row)))(
    "gives values of bf16 the scale of the definition, in a tensor of %d",
    (tensorAmax) => {
      using _scope = new Scope();
      const codes = scalesOf([quantizer, rule, format], PATTERNS, "bf16", tensorAmax);
      const index = codes.findIndex(
        (code, i) =>
          code !== expected(fromBits(((PATTERNS[i] as number) % 0x8000) * 0x10000), tensorAmax, "bf16"),
      );
      expect({ at: index, code: codes[index] }).toEqual({ at: -1, code: undefined });
    },
  );

  it.each(sampleCases(TENSORS, 1, RULES.indexOf(row) + 1))(
    "changes its scale where the definition does, in a tensor of %d",
    (tensorAmax) => {
      using _scope = new Scope();
      const steps = stepPatterns();
      const codes = scalesOf([quantizer, rule, format], steps, "f32", tensorAmax);
      const wrongIndex = codes.findIndex(
        (code, i) => code !== expected(fromBits(steps[i] as number), tensorAmax, "f32"),
      );
      expect({ at: wrongIndex, bits: steps[wrongIndex], code: codes[wrongIndex] }).toEqual({
        at: -1,
        bits: undefined,
        code: undefined,
      });
    },
  );

  it("has tensors in which most scales occur", () => {
    const step = IS_FULL ? 1 : 8;
    const amaxes = Array.from({ length: 0x7f80 / step }, (_, i) => fromBits(i * step * 0x10000));
    const codes = amaxes.map((amax) => expected(amax, 2688, "bf16"));
    expect(new Set(codes).size).toBeGreaterThan(115);
  });
});

describe.each(
  sampleCases(
    RULES.filter((row) => !BY_TENSOR.includes(row)),
    5,
  ),
)("%s %s %s", (quantizer, rule, format) => {
  testInScope("gives values of bf16 the scale of the definition", () => {
    const codes = scalesOf([quantizer, rule, format], PATTERNS, "bf16");
    const wrongIndex = codes.findIndex(
      (code, i) =>
        code !== expectedScale(rule, format, fromBits(((PATTERNS[i] as number) % 0x8000) * 0x10000), "bf16"),
    );
    expect({ at: wrongIndex, code: codes[wrongIndex] }).toEqual({ at: -1, code: undefined });
    expect(new Set(codes).size).toBeGreaterThan(rule === "e8m0UpLeast" ? 140 : 230);
  });

  testInScope("changes its scale where the definition does, to the ulp of f32", () => {
    const steps = Uint32Array.from([...stepPatterns(), ...logarithmSteps()]);
    const codes = scalesOf([quantizer, rule, format], steps, "f32");
    const wrongIndex = codes.findIndex(
      (code, i) => code !== expectedScale(rule, format, fromBits(steps[i] as number), "f32"),
    );
    expect({ at: wrongIndex, bits: steps[wrongIndex], code: codes[wrongIndex] }).toEqual({
      at: -1,
      bits: undefined,
      code: undefined,
    });
  });
});
