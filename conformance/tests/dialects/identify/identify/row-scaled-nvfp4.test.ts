/** `identifyDialect` distinguishes row-scaled NVFP4, 4over6, and plain NVFP4 with one amax. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Identification, identifyDialect } from "../../../../../src/dialects/identify/identify.js";
import { ShapeError } from "../../../../../src/errors.js";
import { tensor } from "../../../../../src/ops/create.js";
import { NVFP4Quantizer } from "../../../../../src/quantizers/nvfp4.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { splitmix32 } from "../../../../arbitraries/random.js";
import { draws } from "../../../harness/draws.js";
import { useBackend } from "../../../harness/suite.js";

const backend = useBackend({ threads: 1 });

/** Rows whose amaxes span many binades, none a power-of-two multiple of another. */
function drawn(seed: number, [rows, columns]: readonly [number, number], dtype: "f32" | "bf16"): Tensor {
  const next = splitmix32(seed);
  const scales = Array.from({ length: rows }, () => 2 ** ((next() % 12) - 6) * (1 + (next() % 64) / 64));
  const values = Float32Array.from({ length: rows * columns }, (_, i) => {
    const word = next();
    return ((word | 0) / 2 ** 31) * 2 ** -(word % 5) * (scales[Math.floor(i / columns)] as number);
  });
  if (dtype === "f32") return tensor(backend(), values, [rows, columns]);
  const words = Uint16Array.from(new Uint32Array(values.buffer), (word) => word >>> 16);
  return tensor(backend(), words, [rows, columns], "bf16");
}

const CHOICES = (["none", "mae", "mse"] as const).flatMap((fourOverSix) =>
  (fourOverSix === "none" ? ([448] as const) : ([448, 256] as const)).map((e4m3Max) => ({
    fourOverSix,
    e4m3Max,
  })),
);

const cases = fc.record({
  seed: fc.nat(),
  size: fc.tuple(
    fc.integer({ min: 2, max: 40 }),
    fc.integer({ min: 2, max: 8 }).map((blocks) => 16 * blocks),
  ),
  dtype: fc.constantFrom("f32", "bf16"),
  choice: fc.constantFrom(...CHOICES),
  scaleLayout: fc.constantFrom("logical", "padded", "swizzled"),
} as const);

interface RowScaledTensor {
  readonly codes: Tensor;
  readonly scales: Tensor;
  readonly amaxes: Float32Array;
}

function quantizeRows(
  x: Tensor,
  options: NonNullable<ConstructorParameters<typeof NVFP4Quantizer>[0]>,
): RowScaledTensor {
  const { data, scaleInv, amax } = new NVFP4Quantizer({ ...options, columnwise: false })
    .quantize(x as Tensor<"f32">)
    .copy("rowwise");
  return { codes: data, scales: scaleInv, amaxes: amax?.dataSync() as Float32Array };
}

const identify = (x: Tensor, { codes, scales }: RowScaledTensor, amaxes: Float32Array): Identification =>
  identifyDialect(x, { codes, scales, tensorScale: tensor(backend(), amaxes, [amaxes.length]) });

const isOf = (bits: RowScaledTensor, other: RowScaledTensor): boolean =>
  [bits.codes, bits.scales].every((each, i) => {
    const codesOrScales = [other.codes, other.scales][i]?.dataSync() as Uint8Array;
    return Buffer.compare(each.dataSync() as Uint8Array, codesOrScales) === 0;
  });

describe("row-scaled NVFP4", () => {
  it("is identified with its options, and not with options that give other bits", () => {
    fc.assert(
      fc.property(cases, ({ seed, size, dtype, choice, scaleLayout }) => {
        using _scope = new Scope();
        const x = drawn(seed, size, dtype);
        const stored = quantizeRows(x, { rowScaled: true, ...choice, scaleLayout });
        const { readings, dialects, excluded, words } = identify(x, stored, stored.amaxes);
        const choices = readings.map(({ rowScaled, fourOverSix, e4m3Max }) => ({
          rowScaled,
          fourOverSix,
          e4m3Max,
        }));
        const equivalent = CHOICES.filter((each) =>
          isOf(quantizeRows(x, { rowScaled: true, ...each, scaleLayout }), stored),
        );
        const row = (each: (typeof CHOICES)[number]) => ({ rowScaled: true, ...each });
        const unique = [...new Map(choices.map((each) => [JSON.stringify(each), each])).values()];
        const differ = new Set(stored.amaxes).size > 1;
        if (differ) {
          expect(unique).toHaveLength(equivalent.length);
          expect(unique).toEqual(expect.arrayContaining(equivalent.map(row)));
          expect(dialects).toEqual([]);
          expect(excluded.find(({ dialect }) => dialect === "te")?.because).toMatch(
            /scales differ|scale of the tensor is not/,
          );
          expect(words).toContain("row-scaled twoLevel");
        } else expect(unique).toEqual(expect.arrayContaining(equivalent.map(row)));
      }),
      { numRuns: draws(60) },
    );
  });

  it("is identified from its scales if amaxes are omitted", () => {
    fc.assert(
      fc.property(cases, ({ seed, size, dtype, choice, scaleLayout }) => {
        using _scope = new Scope();
        const x = drawn(seed, size, dtype);
        const stored = quantizeRows(x, { rowScaled: true, ...choice, scaleLayout });
        const { codes, scales } = stored;
        const { readings } = identifyDialect(x, { codes, scales });
        expect(readings).toContainEqual(
          expect.objectContaining({ quantizer: "nvfp4", scaleRule: "twoLevel", rowScaled: true, ...choice }),
        );
      }),
      { numRuns: draws(20) },
    );
  });

  it("is the nearest reading if the amax of one row is wrong, and that row is reported", () => {
    fc.assert(
      fc.property(cases, fc.nat(), fc.constantFrom(0.5, 1.5, 0), (drawnCase, at, factor) => {
        using _scope = new Scope();
        const { seed, size, dtype, choice, scaleLayout } = drawnCase;
        const x = drawn(seed, size, dtype);
        const stored = quantizeRows(x, { rowScaled: true, ...choice, scaleLayout });
        const wrong = stored.amaxes.slice();
        const row = at % wrong.length;
        wrong[row] = (wrong[row] as number) * factor;
        fc.pre(wrong[row] !== stored.amaxes[row] && new Set(stored.amaxes).size > wrong.length / 2);
        const { readings, dialects, nearest } = identify(x, stored, wrong);
        expect({ readings, dialects }).toEqual({ readings: [], dialects: [] });
        expect(nearest).toMatchObject({ scaleRule: "twoLevel", scales: { different: 0 } });
        expect(nearest?.words).toContain("nearest are row-scaled twoLevel");
        expect(nearest?.words).toContain(
          `the amax of row ${row} is ${stored.amaxes[row]}, not ${wrong[row]}`,
        );
      }),
      {
        numRuns: draws(30),
        // the scales also fit tiles of 16x16, whose codes differ
        examples: [
          [
            {
              ...{ seed: 15, size: [2, 32], dtype: "f32", scaleLayout: "logical" },
              choice: { fourOverSix: "none", e4m3Max: 448 },
            },
            0,
            0.5,
          ],
        ],
      },
    );
  });

  it("is identified with amaxes stored as reciprocals, decode scales or encode scales", () => {
    // the decode scale has the largest product of a code and a scale as divisor
    const forms = {
      reciprocal: (amax: number) => 1 / amax,
      "decode scale": (amax: number, largest: number) => amax / largest,
      "encode scale": (amax: number, largest: number) => largest / amax,
    };
    const form = fc.constantFrom(...(Object.keys(forms) as (keyof typeof forms)[]));
    fc.assert(
      fc.property(
        cases,
        form,
        fc.boolean(),
        ({ seed, size, dtype, choice, scaleLayout }, name, rowScaled) => {
          using _scope = new Scope();
          const x = drawn(seed, size, dtype);
          const stored = quantizeRows(x, { rowScaled, ...choice, scaleLayout });
          const amaxes = stored.amaxes.map((amax) => forms[name](amax, 6 * choice.e4m3Max));
          const { readings } = identify(x, stored, amaxes);
          expect(readings).toContainEqual(
            expect.objectContaining({ rowScaled, ...choice, tensorScale: name }),
          );
        },
      ),
      {
        numRuns: draws(60),
        // the largest scale is 256 instead of 448
        examples: [
          [
            {
              ...{ seed: 0, size: [2, 32], dtype: "f32", scaleLayout: "logical" },
              choice: { fourOverSix: "mae", e4m3Max: 256 },
            },
            "decode scale",
            false,
          ],
        ],
      },
    );
  });

  it("is not named for a tensor scaled by its own amax, whose amax may be stored for each row", () => {
    fc.assert(
      fc.property(cases, fc.boolean(), ({ seed, size, dtype, choice }, isSpread) => {
        using _scope = new Scope();
        const x = drawn(seed, size, dtype);
        const copy = quantizeRows(x, choice);
        const rows = quantizeRows(x, { rowScaled: true, ...choice });
        fc.pre(new Set(rows.amaxes).size > 1);
        const amax = copy.amaxes[0] as number;
        const stored = new Float32Array(isSpread ? size[0] : 1).fill(amax);
        const { readings, dialects } = identify(x, copy, stored);
        expect(readings.map(({ rowScaled }) => rowScaled)).not.toContain(true);
        expect(readings).toContainEqual(expect.objectContaining({ rowScaled: false, ...choice }));
        if (choice.fourOverSix === "none") expect(dialects).toContain("te");
      }),
      { numRuns: draws(40) },
    );
  });

  it("refuses amaxes that are neither one nor as many as rows", () => {
    using _scope = new Scope();
    const x = drawn(5, [6, 32], "f32");
    const stored = quantizeRows(x, { rowScaled: true });
    expect(() => identify(x, stored, stored.amaxes.slice(1))).toThrow(ShapeError);
    expect(() => identify(x, stored, stored.amaxes.slice(1))).toThrow(
      /tensorScale is \[5\]; .* the rows, \[6\]/,
    );
  });
});
