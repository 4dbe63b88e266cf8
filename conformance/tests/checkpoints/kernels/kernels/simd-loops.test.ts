/** The kernels' results for groups of sixteen elements equal plain loops over elements. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Changes } from "../../../../../src/checkpoints/convert/changes/changes.js";
import { compareRows } from "../../../../../src/checkpoints/convert/changes/compare.js";
import { CodeTables } from "../../../../../src/checkpoints/kernels/code-tables.js";
import { Kernels } from "../../../../../src/checkpoints/kernels/kernels.js";
import { CODE_TYPES } from "../../../../../src/checkpoints/stored/code-types.js";
import { WIDE } from "../../../../../src/formats/contract.gen.js";
import { draws } from "../../../harness/draws.js";
import { bf16, countChanges, encodeAs, toCounts } from "../../files/plain.js";
import { float, floats } from "../../files/weights.js";

describe("codes of eight bits under one scale become bf16, many at a time", () => {
  const scales = fc.oneof(
    floats,
    fc.integer({ min: -149, max: 127 }).map((exponent) => 2 ** exponent),
  );

  it.each(["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"] as const)("%s", async (type) => {
    const kernels = await Kernels.open();
    const { values } = CODE_TYPES[type];
    fc.assert(
      fc.property(
        scales,
        fc.uint8Array({ minLength: 1, maxLength: 100, size: "max" }),
        fc.integer({ min: 0, max: 255 }),
        fc.constantFrom(0, 0, 8, 16, 64),
        (scale, drawnCodes, mask, outlierBits) => {
          // with fewer codes, the outlying codes are in some vectors only, and none of them is small
          const codes = drawnCodes.map((code) => (code & mask) | outlierBits);
          const tables = new CodeTables(kernels, type, 1);
          const isChanging = tables.widen(0, scale, WIDE.bf16);
          const out = kernels.buffer("wide", 2 * codes.length);
          kernels.call("widenBlock", {
            codes: kernels.put("codes", codes),
            rows: 1,
            width: codes.length,
            pitch: codes.length,
            table: tables.address,
            dst: out.address,
            type: WIDE.bf16,
          });
          const products = [...codes].map((code) => (values[code] ?? 0) * scale);
          const bf16Bits = new Uint16Array(out.bytes.slice().buffer);
          expect([...bf16Bits]).toEqual(products.map((value) => bf16(value).bits));
          const tableProducts = [...values].map((value) => value * scale);
          expect(isChanging).toBe(
            tableProducts.some((value) => !Object.is(value + 0, bf16(value).value + 0)),
          );
        },
      ),
      { numRuns: draws(1000) },
    );
  });
});

describe("values near their codes are compared to the last bit, whatever the largest changes before them", () => {
  /** The number of f64 by which the largest known changes are below later ones; the last entry doubles them. */
  const stepsBelow = fc.constantFrom(0, 1, 2 ** 26, 2 ** 40, -(2 ** 52));
  const nearbyValues = fc.record({
    codes: fc.array(fc.integer({ min: 0, max: 255 }), { minLength: 16, maxLength: 64, size: "max" }),
    scale: fc.oneof(
      fc.integer({ min: -70, max: 70 }).map((exponent) => 2 ** exponent),
      fc.integer({ min: 0x38000000, max: 0x48000000 }).map(float),
    ),
    steps: fc.array(fc.oneof(fc.constant(0), fc.integer({ min: -40, max: 40 })), {
      minLength: 1,
      maxLength: 64,
      size: "max",
    }),
    // values that become zero
    lostShare: fc.constantFrom(0, 2 ** -12, 2 ** -40),
    // values that change by a power of two of the last bit of f32
    power: fc.integer({ min: 0, max: 21 }),
    knownSteps: fc.tuple(stepsBelow, stepsBelow),
    dtype: fc.constantFrom("f32" as const, "bf16" as const),
  });
  const lowerBy = (value: number, numSteps: number): number => {
    const [bits = 0n] = new BigUint64Array(Float64Array.of(value).buffer);
    const lowerBits = bits - BigInt(numSteps);
    return lowerBits < 0n ? 0 : (new Float64Array(BigUint64Array.of(lowerBits).buffer)[0] as number);
  };

  it.each(["e4m3", "e5m2", "e2m1", "int8"] as const)("%s", async (type) => {
    const kernels = await Kernels.open();
    const codeValues = CODE_TYPES[type].values;
    fc.assert(
      fc.property(
        nearbyValues,
        ({ codes: drawnCodes, scale, steps, lostShare, power, knownSteps, dtype }) => {
          const columns = drawnCodes.length & ~1;
          const codes = drawnCodes.slice(0, columns).map((code) => code % codeValues.length);
          const products = codes.map((code) => (codeValues[code] ?? 0) * scale);
          const expected = products.map((value, i) =>
            value === 0
              ? lostShare * scale
              : Math.fround(value * (1 + (steps[i % steps.length] ?? 0) * 2 ** (power - 24))),
          );
          const { bytes, values } = encodeAs(dtype, expected);
          const expectedCounts = countChanges(
            products.map((product, i) => [values[i] ?? 0, product]),
            (original, converted) => original === converted,
          );
          const changes = new Changes();
          const knownMaxima = {
            max: lowerBy(expectedCounts.max, knownSteps[0]),
            relative: lowerBy(expectedCounts.relative, knownSteps[1]),
          };
          changes.max = knownMaxima.max;
          changes.relative = knownMaxima.relative;
          const packedCodes =
            type === "e2m1"
              ? Uint8Array.from({ length: columns / 2 }, (_, i) =>
                  codes.slice(2 * i, 2 * i + 2).reduceRight((byte, code) => byte * 16 + code, 0),
                )
              : Uint8Array.from(codes);
          compareRows(
            kernels,
            { blocks: { kind: "group", size: [1, 16], grid: [1, Math.ceil(columns / 16)] }, type },
            { rows: 1, columns, type: dtype, values: bytes },
            packedCodes,
            { values: new Float32Array(Math.ceil(columns / 16)).fill(scale) },
            changes,
          );
          expect(toCounts(changes)).toEqual({
            ...expectedCounts,
            max: Math.max(knownMaxima.max, expectedCounts.max),
            relative: Math.max(knownMaxima.relative, expectedCounts.relative),
          });
        },
      ),
      { numRuns: draws(2000) },
    );
  });
});
