/** Elements that are rounded to bf16 before encoding: every bf16 number under large and small scales. */
import { describe, expect, it } from "vitest";
import type { BlockFormatName } from "../../../../src/formats/block.js";
import type { ElementScalingName } from "../../../../src/formats/element-scalings.js";
import type { ScaleRuleName } from "../../../../src/formats/scale-rules.js";
import { castTo, encode } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { quantizerNamed } from "../../../../src/quantizers/named.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });

const ROWS: readonly (readonly [BlockFormatName, ScaleRuleName, ElementScalingName])[] = [
  ["fp8-row", "f32QuotientLeast", "divideTypedAdd"],
  ["fp8-row", "f32QuotientLeast", "divideTyped"],
  ["fp8-row", "f32Quotient", "divideTypedAdd"],
  ["fp8-row", "f32Quotient", "divideTyped"],
  ["mxfp8", "e8m0Up", "multiplyTypedAdd"],
  ["mxfp4", "e8m0Floor", "multiplyTypedAdd"],
];

const numberOf = (bits: number): number => new Float32Array(Uint32Array.of(bits << 16).buffer)[0] as number;

/** Amaxes whose quotients by the largest code are powers of two, or not, from subnormal to the largest ones. */
const AMAXES = [0x0043, 0x0180, 0x3f80, 0x43e0, 0x4460, 0x4461, 0x4493, 0x47e0, 0x4ac0, 0x7e43, 0x7f7f];

describe.each(ROWS)("%s by %s, %s", (quantizer, scaleRule, elementScaling) => {
  it.each(AMAXES)("rounds the quotient to bf16, and that to a code, under the amax of bits %i", (amax) => {
    using _scope = new Scope();
    // blocks that begin with the amax, followed by smaller numbers of both signs
    const below = Array.from({ length: 2 * (amax + 1) }, (_, i) => (i & 1) * 0x8000 + (i >> 1));
    const columns = Math.ceil(below.length / 31) * 32;
    const bits = new Uint16Array(columns);
    for (let i = 0; i < columns; i++)
      bits[i] = i % 32 === 0 ? amax : (below[Math.floor(i / 32) * 31 + (i % 32) - 1] ?? 0);
    const x = tensor(backend(), bits, [1, columns], "bf16");
    const quantizedTensor = quantizerNamed(quantizer, {
      scaleRule,
      elementScaling,
      columnwise: false,
    }).quantize(x);
    const { data, scaleInv } = quantizedTensor.copy("rowwise");
    const stored = Number(scaleInv.dataSync()[0]);
    const scale = quantizer === "fp8-row" ? stored : 2 ** (stored - 127);
    const quotients = Float32Array.from(bits, (pattern) => Math.fround(numberOf(pattern) / scale));
    const roundedQuotients = castTo(
      castTo(tensor(backend(), quotients), "bf16"),
      "f32",
    ).dataSync() as Float32Array;
    const adds = elementScaling.endsWith("Add");
    const elements = tensor(
      backend(),
      roundedQuotients.map((value) => (adds ? value + 0 : value)),
    );
    const expected = encode(elements, { format: quantizedTensor.spec.format });
    expect(Buffer.compare(data.dataSync() as Uint8Array, expected.dataSync() as Uint8Array)).toBe(0);
  });
});
