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
function drawMatrix(seed: number, [rows, columns]: readonly [number, number], dtype: "f32" | "bf16"): Tensor {
  const next = splitmix32(seed);
  const scales = Array.from({ length: rows }, () => 2 ** ((next() % 12) - 6) * (1 + (next() % 64) / 64));
  const values = Float32Array.from({ length: rows * columns }, (_, i) => {
    const word = next();
    return ((word | 0) / 2 ** 31) * 2 ** -(word % 5) * (scales[Math.floor(i / columns)] as number);
  });
  if (dtype === "f32") return tensor(backend(), values, [rows, columns]);
  const bf16Bits = Uint16Array.from(new Uint32Array(values.buffer), (word) => word >>> 16);
  return tensor(backend(), bf16Bits, [rows, columns], "bf16");
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

const areEqual = (bits: RowScaledTensor, otherBits: RowScaledTensor): boolean =>
  [bits.codes, bits.scales].every((member, i) => {
    const codesOrScales = [otherBits.codes, otherBits.scales][i]?.dataSync() as Uint8Array;
    return Buffer.compare(member.dataSync() as Uint8Array, codesOrScales) === 0;
  });

describe("row-scaled NVFP4", () => {
  it("is identified with its options, and not with options that give other bits", () => {
    fc.assert(
      fc.property(cases, ({ seed, size, dtype, choice, scaleLayout }) => {
        using _scope = new Scope();
        const x = drawMatrix(seed, size, dtype);
        const storedTensors = quantizeRows(x, { rowScaled: true, ...choice, scaleLayout });
        const { readings, dialects, excluded, words } = identify(x, storedTensors, storedTensors.amaxes);
        const choices = readings.map(({ rowScaled, fourOverSix, e4m3Max }) => ({
          rowScaled,
          fourOverSix,
          e4m3Max,
        }));
        const equivalent = CHOICES.filter((candidate) =>
          areEqual(quantizeRows(x, { rowScaled: true, ...candidate, scaleLayout }), storedTensors),
        );
        const row = (rowChoice: (typeof CHOICES)[number]) => ({ rowScaled: true, ...rowChoice });
        const unique = [
          ...new Map(
            choices.map((equivalentChoice) => [JSON.stringify(equivalentChoice), equivalentChoice]),
          ).values(),
        ];
        const differ = new Set(storedTensors.amaxes).size > 1;
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
        const x = drawMatrix(seed, size, dtype);
        const storedTensors = quantizeRows(x, { rowScaled: true, ...choice, scaleLayout });
        const { codes, scales } = storedTensors;
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
      fc.property(cases, fc.nat(), fc.constantFrom(0.5, 1.5, 0), (drawnCase, rowIndex, factor) => {
        using _scope = new Scope();
        const { seed, size, dtype, choice, scaleLayout } = drawnCase;
        const x = drawMatrix(seed, size, dtype);
        const storedTensors = quantizeRows(x, { rowScaled: true, ...choice, scaleLayout });
        const wrongAmaxes = storedTensors.amaxes.slice();
        const row = rowIndex % wrongAmaxes.length;
        wrongAmaxes[row] = (wrongAmaxes[row] as number) * factor;
        fc.pre(
          wrongAmaxes[row] !== storedTensors.amaxes[row] &&
            new Set(storedTensors.amaxes).size > wrongAmaxes.length / 2,
        );
        const { readings, dialects, nearest } = identify(x, storedTensors, wrongAmaxes);
        expect({ readings, dialects }).toEqual({ readings: [], dialects: [] });
        expect(nearest).toMatchObject({ scaleRule: "twoLevel", scales: { different: 0 } });
        expect(nearest?.words).toContain("nearest are row-scaled twoLevel");
        expect(nearest?.words).toContain(
          `the amax of row ${row} is ${storedTensors.amaxes[row]}, not ${wrongAmaxes[row]}`,
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
          const x = drawMatrix(seed, size, dtype);
          const storedTensors = quantizeRows(x, { rowScaled, ...choice, scaleLayout });
          const amaxes = storedTensors.amaxes.map((amax) => forms[name](amax, 6 * choice.e4m3Max));
          const { readings } = identify(x, storedTensors, amaxes);
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
        const x = drawMatrix(seed, size, dtype);
        const copy = quantizeRows(x, choice);
        const rows = quantizeRows(x, { rowScaled: true, ...choice });
        fc.pre(new Set(rows.amaxes).size > 1);
        const amax = copy.amaxes[0] as number;
        const storedAmaxes = new Float32Array(isSpread ? size[0] : 1).fill(amax);
        const { readings, dialects } = identify(x, copy, storedAmaxes);
        expect(readings.map(({ rowScaled }) => rowScaled)).not.toContain(true);
        expect(readings).toContainEqual(expect.objectContaining({ rowScaled: false, ...choice }));
        if (choice.fourOverSix === "none") expect(dialects).toContain("te");
      }),
      { numRuns: draws(40) },
    );
  });

  it("refuses amaxes that are neither one nor as many as rows", () => {
    using _scope = new Scope();
    const x = drawMatrix(5, [6, 32], "f32");
    const storedTensors = quantizeRows(x, { rowScaled: true });
    expect(() => identify(x, storedTensors, storedTensors.amaxes.slice(1))).toThrow(ShapeError);
    expect(() => identify(x, storedTensors, storedTensors.amaxes.slice(1))).toThrow(
      /tensorScale is \[5\]; .* the rows, \[6\]/,
    );
  });
});
