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
import { bf16, countChanges, heldAs, toCounts } from "../../files/plain.js";
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
        (scale, drawn, mask, above) => {
          // with fewer codes, the outlying codes are in some vectors only, and none of them is small
          const codes = drawn.map((code) => (code & mask) | above);
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
          const words = new Uint16Array(out.bytes.slice().buffer);
          expect([...words]).toEqual(products.map((value) => bf16(value).bits));
          const all = [...values].map((value) => value * scale);
          expect(isChanging).toBe(all.some((value) => !Object.is(value + 0, bf16(value).value + 0)));
        },
      ),
      { numRuns: draws(1000) },
    );
  });
});

describe("values near their codes are compared to the last bit, whatever the largest changes before them", () => {
  /** The number of f64 by which the largest known changes are below later ones; the last entry doubles them. */
  const steps = fc.constantFrom(0, 1, 2 ** 26, 2 ** 40, -(2 ** 52));
  const near = fc.record({
    codes: fc.array(fc.integer({ min: 0, max: 255 }), { minLength: 16, maxLength: 64, size: "max" }),
    scale: fc.oneof(
      fc.integer({ min: -70, max: 70 }).map((exponent) => 2 ** exponent),
      fc.integer({ min: 0x38000000, max: 0x48000000 }).map(float),
    ),
    by: fc.array(fc.oneof(fc.constant(0), fc.integer({ min: -40, max: 40 })), {
      minLength: 1,
      maxLength: 64,
      size: "max",
    }),
    // values that become zero
    lost: fc.constantFrom(0, 2 ** -12, 2 ** -40),
    // values that change by a power of two of the last bit of f32
    power: fc.integer({ min: 0, max: 21 }),
    below: fc.tuple(steps, steps),
    of: fc.constantFrom("f32" as const, "bf16" as const),
  });
  const lower = (value: number, by: number): number => {
    const [bits = 0n] = new BigUint64Array(Float64Array.of(value).buffer);
    const less = bits - BigInt(by);
    return less < 0n ? 0 : (new Float64Array(BigUint64Array.of(less).buffer)[0] as number);
  };

  it.each(["e4m3", "e5m2", "e2m1", "int8"] as const)("%s", async (type) => {
    const kernels = await Kernels.open();
    const worth = CODE_TYPES[type].values;
    fc.assert(
      fc.property(near, ({ codes: drawn, scale, by, lost, power, below, of }) => {
        const columns = drawn.length & ~1;
        const codes = drawn.slice(0, columns).map((code) => code % worth.length);
        const products = codes.map((code) => (worth[code] ?? 0) * scale);
        const expected = products.map((value, i) =>
          value === 0
            ? lost * scale
            : Math.fround(value * (1 + (by[i % by.length] ?? 0) * 2 ** (power - 24))),
        );
        const { bytes, values } = heldAs(of, expected);
        const plain = countChanges(
          products.map((product, i) => [values[i] ?? 0, product]),
          (before, after) => before === after,
        );
        const changes = new Changes();
        const known = { max: lower(plain.max, below[0]), relative: lower(plain.relative, below[1]) };
        changes.max = known.max;
        changes.relative = known.relative;
        const packed =
          type === "e2m1"
            ? Uint8Array.from({ length: columns / 2 }, (_, i) =>
                codes.slice(2 * i, 2 * i + 2).reduceRight((byte, code) => byte * 16 + code, 0),
              )
            : Uint8Array.from(codes);
        compareRows(
          kernels,
          { blocks: { kind: "group", size: [1, 16], grid: [1, Math.ceil(columns / 16)] }, type },
          { rows: 1, columns, type: of, values: bytes },
          packed,
          { values: new Float32Array(Math.ceil(columns / 16)).fill(scale) },
          changes,
        );
        expect(toCounts(changes)).toEqual({
          ...plain,
          max: Math.max(known.max, plain.max),
          relative: Math.max(known.relative, plain.relative),
        });
      }),
      { numRuns: draws(2000) },
    );
  });
});
