/** A weight is compared with its original element by element, and a wrong interpretation of it is named. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { FindingName } from "../../../../src/checkpoints/judge/findings.js";
import { compareOriginal, type Original } from "../../../../src/checkpoints/judge/original/compare.js";
import { Kernels } from "../../../../src/checkpoints/kernels/kernels.js";
import { CODE_TYPES } from "../../../../src/checkpoints/stored/code-types.js";
import { readScales } from "../../../../src/checkpoints/stored/scales.js";
import type { QuantizedWeight } from "../../../../src/checkpoints/stored/weight.js";
import { sourcesOf } from "../../../../src/checkpoints/values/source.js";
import { MemorySource } from "../../../../src/io/source.js";
import { words } from "../../../arbitraries/random.js";
import { draws } from "../../harness/draws.js";
import { encodeAs } from "../files/plain.js";
import { type Drawn, KINDS, weights } from "../files/weights.js";

const DTYPES = { f32: "F32", bf16: "BF16", f16: "F16" } as const;

/** A checkpoint with the original of a weight. */
function originalOf(
  { name, shape }: QuantizedWeight,
  dtype: keyof typeof DTYPES,
  elements: readonly number[],
): { readonly original: Original; readonly values: readonly number[] } {
  const { bytes, values } = encodeAs(dtype, elements);
  const originalBytes = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const shard = new MemorySource("original", [{ name, dtype: DTYPES[dtype], shape, bytes: originalBytes }]);
  return {
    original: { path: "original", sources: sourcesOf([], [{ shard, entry: shard.entry(name) }]) },
    values,
  };
}

const valuesOf = ({ weight, codes, scales }: Drawn): number[] =>
  codes.map((code, i) => (CODE_TYPES[weight.type].values[code] as number) * (scales[i] as number));

describe("the error against an original", () => {
  it.each(KINDS)(
    "of $convention, scales $scale by $kind, equals the error that plain loops compute",
    async (kind) => {
      const shares = fc.array(fc.constantFrom(0, 1, 1, 1, 1.0625, 0.5, -2), { minLength: 1, maxLength: 7 });
      const types = fc.constantFrom(...(["f32", "bf16", "f16"] as const));
      const kernels = await Kernels.open();
      await fc.assert(
        fc.asyncProperty(weights(kind), shares, types, async (drawnWeight, factors, dtype) => {
          const weightValues = valuesOf(drawnWeight);
          const expected = weightValues.map((value, i) => value * (factors[i % factors.length] as number));
          const { original, values } = originalOf(drawnWeight.weight, dtype, expected);
          // NaN and infinities have no meaningful error
          if (![...weightValues, ...values].every(Number.isFinite)) return;
          const { error } = await compareOriginal(
            kernels,
            drawnWeight.weight,
            await readScales(drawnWeight.weight),
            original,
          );
          const differences = weightValues.map((value, i) => Math.abs(value - (values[i] as number)));
          const power = (elements: readonly number[]): number =>
            elements.reduce((sum, element) => sum + element * element, 0);
          const relative = power(values) > 0 ? Math.sqrt(power(differences) / power(values)) : 0;
          expect(error?.max).toBe(differences.reduce((max, element) => Math.max(max, element), 0));
          if (power(values) > 0 && Number.isFinite(power(values)))
            expect(Math.abs((error?.relative ?? 0) - relative)).toBeLessThanOrEqual(1e-9 * relative);
        }),
        { numRuns: draws(40) },
      );
    },
  );
});

type ReadScales = (scales: Float32Array) => Float32Array;

/**
 * A weight of two matrices with square grids of scales, one scale for each block: at `logSpread` 0 all scales are equal.
 * `readScales` converts the stored scales to the right scales. With `hasNegativeScales`, every second scale is negative.
 */
function plantWeight(
  convention: "ct-nvfp4" | "block-fp8",
  decodeScales: ReadScales,
  logSpread = 1,
  hasNegativeScales = false,
): Drawn {
  const isTile = convention === "block-fp8";
  const [size, block] = isTile ? [256, [128, 128] as const] : [4, [1, 16] as const];
  const [rows, columns] = isTile ? [size, size] : [size, 16 * size];
  const type = isTile ? "e4m3" : "e2m1";
  const grid = [rows / block[0], columns / block[1]] as const;
  const area = grid[0] * grid[1];
  const storedScales = Float32Array.from(
    { length: 2 * area },
    (_, i) =>
      2 ** (logSpread * (((i * 5) % 7) - 3)) *
      (1 + (logSpread * i) / 64) *
      (hasNegativeScales && i % 2 === 1 ? -1 : 1),
  );
  const count = 2 * rows * columns;
  // positive codes from the middle of the range, so that every other interpretation is far off
  const codes = Array.from({ length: count }, (_, i) => (isTile ? 0x38 + ((i * 7) % 24) : 1 + ((i * 5) % 7)));
  const bytes = isTile
    ? Uint8Array.from(codes)
    : Uint8Array.from(
        { length: count / 2 },
        (_, i) => (codes[2 * i] as number) | ((codes[2 * i + 1] as number) << 4),
      );
  const scaleBytes = new Uint8Array(storedScales.buffer);
  const shard = new MemorySource("drawn", [
    { name: "codes", dtype: "U8", shape: [bytes.length], bytes },
    { name: "scale", dtype: "F32", shape: [storedScales.length], bytes: scaleBytes },
  ]);
  const tensor = (name: string) => ({ shard, entry: shard.entry(name) });
  const rightScales = decodeScales(storedScales);
  return {
    weight: {
      name: "layer.weight",
      convention,
      type,
      shape: [2, rows, columns],
      codes: tensor("codes"),
      scale: tensor("scale"),
      geometry: { kind: isTile ? "tile" : "group", block, grid, swizzled: false },
    },
    codes,
    scales: codes.map((_, i) => {
      const [row, column] = [Math.floor(i / columns), i % columns];
      const line = Math.floor(row / rows) * grid[0] + Math.floor((row % rows) / block[0]);
      return rightScales[line * grid[1] + Math.floor(column / block[1])] as number;
    }),
  };
}

/** Values of the codes that are within a quarter of the steps to their neighbours. */
function nearbyValues(drawnWeight: Drawn): number[] {
  const { values } = CODE_TYPES[drawnWeight.weight.type];
  return valuesOf(drawnWeight).map((value, i) => {
    const code = drawnWeight.codes[i] as number;
    const step =
      Math.abs((values[code] as number) - (values[code - 1] ?? 0)) * (drawnWeight.scales[i] as number);
    return value + step * ((((i * 37) % 101) - 50) / 200);
  });
}

async function findingsOf(drawnWeight: Drawn, elements: readonly number[]): Promise<readonly FindingName[]> {
  const { original } = originalOf(drawnWeight.weight, "f32", elements);
  const scales = await readScales(drawnWeight.weight);
  const { findings } = await compareOriginal(await Kernels.open(), drawnWeight.weight, scales, original);
  return findings.map(({ name }) => name);
}

describe("a wrong reading is named", () => {
  const turnGrids = (size: number) => (scales: Float32Array) =>
    scales.map((_, index) => {
      const [matrix, indexInMatrix] = [Math.floor(index / size ** 2), index % size ** 2];
      return scales[
        matrix * size ** 2 + (indexInMatrix % size) * size + Math.floor(indexInMatrix / size)
      ] as number;
    });
  const CASES: readonly (readonly [
    FindingName,
    "ct-nvfp4" | "block-fp8",
    (scales: Float32Array) => Float32Array,
  ])[] = [
    ["scale-axis", "ct-nvfp4", turnGrids(4)],
    ["scale-axis", "block-fp8", turnGrids(2)],
    ["scale-inverted", "ct-nvfp4", (scales) => scales.map((scale) => 1 / scale)],
    ["scale-inverted", "block-fp8", (scales) => scales.map((scale) => 1 / scale)],
    ["scale-factor", "block-fp8", (scales) => scales.map((scale) => scale / 2)],
    ["scale-factor", "block-fp8", (scales) => scales.map((scale) => scale * 2)],
    ["scale-factor", "ct-nvfp4", (scales) => scales.map((scale) => scale * 0.003)],
    ["values-apart", "block-fp8", (scales) => scales.map((scale, i) => scale * (i % 2 === 0 ? 1.5 : 1))],
    ["values-apart", "ct-nvfp4", (scales) => scales.map((scale, i) => scale * (i % 2 === 0 ? 2 : 1))],
  ];

  it.each(CASES)("%s, of %s in two matrices", async (name, convention, decodeScales) => {
    const drawnWeight = plantWeight(convention, decodeScales);
    expect(await findingsOf(drawnWeight, valuesOf(drawnWeight))).toEqual([name]);
    expect(await findingsOf(drawnWeight, nearbyValues(drawnWeight))).toEqual([name]);
  });

  it("however little the scales differ, down to what rounding of codes hides", async () => {
    for (const [convention, size, logSpread] of [
      ["block-fp8", 2, 0.08],
      ["ct-nvfp4", 4, 0.3],
    ] as const) {
      const drawnWeight = plantWeight(convention, turnGrids(size), logSpread);
      expect(await findingsOf(drawnWeight, nearbyValues(drawnWeight))).toEqual(["scale-axis"]);
    }
  });

  it("e4m3fnuz codes declared as e4m3fn are found if some are NaN in e4m3fn; overflow gives codes of NaN only", async () => {
    const drawnWeight = plantWeight("block-fp8", (scales) => scales);
    const codes = drawnWeight.codes.map((code, i) => (i % 128 === 0 ? 0x7f : code));
    const fnuz = codes.map(
      (code, i) => (CODE_TYPES.e4m3fnuz.values[code] as number) * (drawnWeight.scales[i] as number),
    );
    const overflowingValues = codes.map(
      (code, i) =>
        (code === 0x7f ? 600 : (CODE_TYPES.e4m3.values[code] as number)) * (drawnWeight.scales[i] as number),
    );
    const damagedWeight = withCodes(drawnWeight, codes);
    expect(await findingsOf(damagedWeight, fnuz)).toEqual(["codes-fnuz"]);
    expect(await findingsOf(damagedWeight, overflowingValues)).toEqual([]);
  });
});

/** A weight with other codes of one byte. */
function withCodes(drawnWeight: Drawn, codes: readonly number[]): Drawn {
  const { name } = drawnWeight.weight.codes.entry;
  const shard = new MemorySource("drawn", [
    { name, dtype: "U8", shape: [codes.length], bytes: Uint8Array.from(codes) },
  ]);
  return {
    ...drawnWeight,
    codes,
    weight: { ...drawnWeight.weight, codes: { shard, entry: shard.entry(name) } },
  };
}

describe("a bound for each element", () => {
  const drawnWeight = plantWeight("block-fp8", (scales) => scales);
  const { values } = CODE_TYPES.e4m3;
  /** Another code, whose value differs by more than one step. */
  const otherCode = (code: number, offset: number): number => (code + 3 + offset) % 0x7f;

  it("holds for the nearest codes, and fails for codes that are rounded to the other side", async () => {
    expect(await findingsOf(drawnWeight, nearbyValues(drawnWeight))).toEqual([]);
    const roundedUp = valuesOf(drawnWeight).map((value, i) => {
      const code = drawnWeight.codes[i] as number;
      const step = (values[code + 1] as number) - (values[code] as number);
      return value + (((i * 37) % 101) / 101) * step * (drawnWeight.scales[i] as number);
    });
    expect(await findingsOf(drawnWeight, roundedUp)).toEqual(["codes-not-nearest"]);
  });

  it("is half the step to the neighbour on the side of the original, for codes and scales of either sign", async () => {
    const signedWeight = plantWeight("block-fp8", (scales) => scales, 1, true);
    const sortedValues = [...new Set([...values].filter(Number.isFinite).map((value) => value + 0))].toSorted(
      (a, b) => a - b,
    );
    const count = signedWeight.codes.length;
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.nat({ max: count - 1 }), async (seed, place) => {
        // every finite code except the largest ones, which have only one neighbour
        const codes = words(seed, count).map((word) => (word % 126) + (word & 0x80));
        const expected = (placeShare: number): number[] =>
          Array.from(codes, (code, i) => {
            const value = values[code] as number;
            const neighbour = sortedValues[
              sortedValues.indexOf(value + 0) + ((i + seed) % 2 === 0 ? 1 : -1)
            ] as number;
            const share = i === place ? placeShare : ((i * 37) % 99) / 200;
            return (value + share * (neighbour - value)) * (signedWeight.scales[i] as number);
          });
        const drawnWeight = withCodes(signedWeight, Array.from(codes));
        expect(await findingsOf(drawnWeight, expected(0.49))).toEqual([]);
        expect(await findingsOf(drawnWeight, expected(0.7))).not.toEqual([]);
      }),
      { numRuns: draws(8) },
    );
  });

  it("finds any number of overwritten codes, wherever they are", async () => {
    const count = drawnWeight.codes.length;
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(1, 2, 128, 1000),
        fc.nat({ max: count - 1 }),
        fc.integer({ min: 0, max: 100 }),
        fc.boolean(),
        async (numOverwritten, begin, offset, isSpread) => {
          const stride = isSpread ? 37 : 1;
          const places = new Set(
            Array.from({ length: numOverwritten }, (_, i) => (begin + stride * i) % count),
          );
          const codes = drawnWeight.codes.map((code, i) => (places.has(i) ? otherCode(code, offset) : code));
          expect(await findingsOf(withCodes(drawnWeight, codes), nearbyValues(drawnWeight))).toEqual([
            "values-apart",
          ]);
        },
      ),
      { numRuns: draws(8) },
    );
  });
});

it("the first element that is apart is named by its position, also beyond the rows that are read at once", async () => {
  const [matrices, rows, columns] = [2, 640, 1024];
  const count = matrices * rows * columns;
  const codes = new Uint8Array(count).map((_, i) => 0x38 + (i % 24));
  const shard = new MemorySource("drawn", [
    { name: "codes", dtype: "U8", shape: [count], bytes: codes },
    { name: "scale", dtype: "F32", shape: [1], bytes: new Uint8Array(Float32Array.of(1).buffer) },
  ]);
  const tensor = (name: string) => ({ shard, entry: shard.entry(name) });
  const weight: QuantizedWeight = {
    name: "layer.weight",
    convention: "ct-float",
    type: "e4m3",
    shape: [matrices, rows, columns],
    codes: tensor("codes"),
    scale: tensor("scale"),
    geometry: { kind: "whole", block: [rows, columns], grid: [1, 1], swizzled: false },
  };
  const values = Array.from(codes, (code) => CODE_TYPES.e4m3.values[code] as number);
  const scales = await readScales(weight);
  const kernels = await Kernels.open();
  const places = fc.uniqueArray(fc.nat({ max: count - 1 }), { minLength: 1, maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(places, async (chosenPlaces) => {
      const elements = [...values];
      for (const place of chosenPlaces) elements[place] = -(values[place] as number);
      const { original } = originalOf(weight, "f32", elements);
      const { findings } = await compareOriginal(kernels, weight, scales, original);
      const firstPlace = Math.min(...chosenPlaces);
      const row = Math.floor(firstPlace / columns);
      const position = [Math.floor(row / rows), row % rows, firstPlace % columns];
      const { length } = chosenPlaces;
      expect(findings.map(({ what }) => what)).toEqual([
        expect.stringContaining(
          `${length} of ${count} codes are further from the original than half a step, ${length} than a whole one; the first is at [${position}];`,
        ),
      ]);
    }),
    { numRuns: draws(8), examples: [[[count - 1]], [[600 * columns + 5, 700 * columns]]] },
  );
});
