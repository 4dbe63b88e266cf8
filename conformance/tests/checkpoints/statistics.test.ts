/** The statistics of a weight equal plain loops over its elements and blocks. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Correlation } from "../../../src/checkpoints/judge/statistics/correlation.js";
import { ScaleCounter } from "../../../src/checkpoints/judge/statistics/scale-counter.js";
import { type Statistics, statisticsOf } from "../../../src/checkpoints/judge/statistics/statistics.js";
import { Kernels } from "../../../src/checkpoints/kernels/kernels.js";
import { readByteScales } from "../../../src/checkpoints/stored/byte-scales.js";
import { CODE_TYPES } from "../../../src/checkpoints/stored/code-types.js";
import { conventionOf } from "../../../src/checkpoints/stored/conventions.js";
import { readScales, scaleOf } from "../../../src/checkpoints/stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../../src/checkpoints/stored/weight.js";
import { fileBytes } from "../../../src/io/dtypes.js";
import { MemorySource } from "../../../src/io/source.js";
import { draws } from "../harness/draws.js";
import { bitsOfByte, type Drawn, floats, KINDS, weightOf, weights } from "./files/weights.js";

const count = <T>(items: Iterable<T>, test: (item: T) => boolean): number => [...items].filter(test).length;
const largest = (elements: readonly number[]): number =>
  elements.reduce((max, element) => Math.max(max, element), 0);
const sum = (elements: readonly number[]): number => elements.reduce((total, element) => total + element, 0);

/** Elements whose magnitudes are grouped by a key, in the order of their first element. */
function groupBy(magnitudes: readonly number[], keyOf: (index: number) => number): Map<number, number[]> {
  const groups = new Map<number, number[]>();
  for (const [i, magnitude] of magnitudes.entries()) {
    const group = groups.get(keyOf(i)) ?? [];
    group.push(magnitude);
    groups.set(keyOf(i), group);
  }
  return groups;
}

/** Pearson's coefficient of the finite pairs. */
function pearson(pairs: readonly (readonly [number, number])[]): number {
  const finitePairs = pairs.filter((pair) => pair.every(Number.isFinite));
  const mean = (axis: 0 | 1): number => sum(finitePairs.map((pair) => pair[axis])) / finitePairs.length;
  const [x, y] = [mean(0), mean(1)];
  const product = (a: 0 | 1, b: 0 | 1): number =>
    sum(finitePairs.map((pair) => (pair[a] - (a ? y : x)) * (pair[b] - (b ? y : x))));
  const deviations = Math.sqrt(product(0, 0) * product(1, 1));
  return deviations > 0 ? product(0, 1) / deviations : 0;
}

/** The statistics by plain loops; NaN codes have no magnitude. */
async function plainStatistics({ weight, codes }: Drawn) {
  const { values, max } = CODE_TYPES[weight.type];
  const { block, grid } = weight.geometry;
  const [, rows, columns] = matricesOf(weight.shape);
  const scales = await readScales(weight);
  const elements = codes.length;
  const exact = codes.map((code) => values[code] as number);
  const magnitudes = exact.map(Math.abs);
  const blockOf = (i: number): number => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const line = Math.floor(row / rows) * grid[0] + Math.floor((row % rows) / block[0]);
    return line * grid[1] + Math.floor(column / block[1]);
  };
  const amaxOf = (group: readonly number[]): number =>
    largest(group.filter((magnitude) => !Number.isNaN(magnitude)));
  const blocks = [...groupBy(magnitudes, blockOf)].map(([index, group]) => ({
    amax: amaxOf(group),
    squares: sum(
      group.filter((magnitude) => !Number.isNaN(magnitude)).map((magnitude) => magnitude * magnitude),
    ),
    hasNaN: group.some(Number.isNaN),
    stored: scales.values[index] as number,
  }));
  const nonzero = blocks.filter(({ amax }) => amax > 0);
  const rowAmaxes = [...groupBy(magnitudes, (i) => Math.floor(i / columns)).values()].map(amaxOf);
  const reading = (interpret: (storedScale: number) => number) => {
    const finite = nonzero
      .map((candidate) => ({ ...candidate, scale: Math.abs(scaleOf(scales, interpret(candidate.stored))) }))
      .filter(({ scale }) => Number.isFinite(scale));
    return {
      amax: largest(finite.map(({ amax, scale }) => amax * scale)),
      rms: Math.sqrt(sum(finite.map(({ squares, scale }) => squares * scale * scale)) / elements),
    };
  };
  const storedScales = [...scales.values];
  const finite = storedScales.filter(Number.isFinite);
  return {
    integers: {
      elements,
      codesUsed: new Set(codes).size,
      zeros: count(exact, (value) => value === 0),
      saturated: count(magnitudes, (value) => value >= max),
      nans: count(exact, Number.isNaN),
      rows: { nonzero: count(rowAmaxes, (amax) => amax > 0), full: count(rowAmaxes, (amax) => amax >= max) },
      blocks: {
        nonzero: count(blocks, ({ amax, hasNaN }) => amax > 0 || hasNaN),
        full: count(nonzero, ({ amax }) => amax >= max),
        zeroScaled: count(nonzero, (nonzeroBlock) => nonzeroBlock.stored === 0),
        withNaN: count(blocks, ({ hasNaN }) => hasNaN),
      },
      scale: {
        count: storedScales.length,
        min: finite.length === 0 ? Number.NaN : Math.min(...finite),
        max: finite.length === 0 ? Number.NaN : Math.max(...finite),
        zero: count(storedScales, (scale) => scale === 0),
        negative: count(finite, (scale) => scale < 0),
        notFinite: storedScales.length - finite.length,
        powersOfTwo: count(finite, (scale) => scale > 0 && Number.isInteger(Math.log2(scale))),
      },
    },
    counts: values.map((_, code) => count(codes, (usedCode) => usedCode === code)),
    reading: reading((scale) => scale),
    inverse: reading((scale) => 1 / scale),
    coefficient: pearson(
      nonzero.map((nonzeroBlock) => [Math.log2(nonzeroBlock.stored), Math.log2(nonzeroBlock.squares) / 2]),
    ),
  };
}

const isNear = (a: number, b: number): boolean => a === b || Math.abs(a - b) <= 1e-9 * Math.abs(b);

describe("statistics", () => {
  it.each(KINDS)(
    "of $convention, scales $scale by $kind, equal the statistics of plain loops",
    async (kind) => {
      const kernels = await Kernels.open();
      await fc.assert(
        fc.asyncProperty(weights(kind), async (drawnWeight) => {
          const bytesRead: number[] = [];
          const scales =
            (await readByteScales(kernels, drawnWeight.weight)) ?? (await readScales(drawnWeight.weight));
          const statistics = await statisticsOf(kernels, drawnWeight.weight, scales, (bytes) => {
            bytesRead.push(...bytes);
          });
          const expected = await plainStatistics(drawnWeight);
          expect(statistics).toMatchObject(expected.integers);
          expect([...statistics.counts]).toEqual([...expected.counts]);
          expect([statistics.amax, statistics.inverse.amax]).toEqual([
            expected.reading.amax,
            expected.inverse.amax,
          ]);
          expect(isNear(statistics.rms, expected.reading.rms)).toBe(true);
          expect(isNear(statistics.inverse.rms, expected.inverse.rms)).toBe(true);
          expect(statistics.correlation.coefficient).toBeCloseTo(expected.coefficient, 6);
          const { shard, entry } = drawnWeight.weight.codes;
          expect(bytesRead).toEqual([...(await shard.read(entry))]);
        }),
        { numRuns: draws(30) },
      );
    },
  );
});

function countScales(values: readonly number[]) {
  const counter = new ScaleCounter();
  for (const value of values) counter.add(Math.fround(value));
  return counter.statistics;
}

/** A weight with its scales in swizzled order, if its grid has whole tiles. */
function withSwizzledScales({ weight }: Drawn, isSwizzled: boolean): QuantizedWeight {
  return { ...weight, geometry: { ...weight.geometry, swizzled: isSwizzled } };
}

describe("statistics by the bytes of scales", () => {
  const byteKinds = KINDS.filter(({ scale, kind }) => fileBytes(scale, [1]) === 1 && kind === "group");
  const choices = fc.record({
    rows: fc.constant(128),
    columns: fc.integer({ min: 1, max: 2 }),
    lead: fc.integer({ min: 1, max: 3 }),
    palette: fc.array(fc.integer({ min: 0, max: 255 }).map(bitsOfByte), { minLength: 1, maxLength: 6 }),
    seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    global: floats,
    globals: fc.array(floats, { minLength: 3, maxLength: 3 }),
    numCodes: fc.integer({ min: 1, max: 16 }),
    isSwizzled: fc.boolean(),
    isStacked: fc.boolean(),
  });

  /** Two matrices with global scales that differ. */
  const STACK = {
    ...{ rows: 128, columns: 1, lead: 2, palette: [bitsOfByte(0x38), bitsOfByte(0x40)], seed: 1, global: 1 },
    ...{ globals: [1, 4, 16], numCodes: 16, isSwizzled: false, isStacked: true },
  };

  it.each(byteKinds)(
    "of $convention equal the statistics by value, in both orders and for stacks",
    async (kind) => {
      const kernels = await Kernels.open();
      const hasGlobal = conventionOf(kind.convention).global !== undefined;
      await fc.assert(
        fc.asyncProperty(
          choices,
          async ({ isSwizzled, isStacked, globals, columns, global, ...otherChoices }) => {
            const drawnWeight = weightOf(kind, {
              ...otherChoices,
              columns: columns * 4 * kind.block[1],
              global: hasGlobal ? global : undefined,
            });
            const stack =
              isStacked && otherChoices.lead > 1 && hasGlobal
                ? globals.slice(0, otherChoices.lead)
                : undefined;
            const bytes = new Uint8Array(Float32Array.from(stack ?? []).buffer);
            const shard = new MemorySource("globals", [
              {
                name: "global",
                dtype: "F32",
                shape: [otherChoices.lead],
                bytes: stack ? bytes : new Uint8Array(4 * otherChoices.lead),
              },
            ]);
            const weight = {
              ...withSwizzledScales(drawnWeight, isSwizzled),
              ...(stack ? { global: { shard, entry: shard.entry("global") } } : {}),
            };
            const statisticsByValue = await statisticsOf(kernels, weight, await readScales(weight));
            const scales = await readByteScales(kernels, weight);
            if (!scales) throw new Error("these scales are bytes");
            expect(scales.oppositeLayout).toBeDefined();
            const statistics = await statisticsOf(kernels, weight, scales);
            const exact = ({
              rms,
              inverse,
              correlation,
              oppositeCorrelation,
              tallies: _,
              ...otherStatistics
            }: Statistics) => ({
              ...otherStatistics,
              amaxes: [inverse.amax, correlation.count, oppositeCorrelation?.count],
            });
            expect(exact(statistics)).toEqual(exact(statisticsByValue));
            expect(isNear(statistics.rms, statisticsByValue.rms)).toBe(true);
            expect(isNear(statistics.inverse.rms, statisticsByValue.inverse.rms)).toBe(true);
            for (const key of ["correlation", "oppositeCorrelation"] as const)
              expect(statistics[key]?.coefficient ?? 0).toBeCloseTo(
                statisticsByValue[key]?.coefficient ?? 0,
                6,
              );
          },
        ),
        { numRuns: draws(20), examples: [[STACK]] },
      );
    },
  );
});

describe("statistics of scales", () => {
  it("do not depend on their order", () => {
    const zeros = fc.constantFrom(0, -0);
    const shuffledPairs = fc
      .array(fc.oneof(floats, zeros), { maxLength: 12 })
      .chain((elements) =>
        fc.tuple(fc.constant(elements), fc.shuffledSubarray(elements, { minLength: elements.length })),
      );
    fc.assert(
      fc.property(shuffledPairs, ([elements, shuffledElements]) => {
        expect(countScales(shuffledElements)).toEqual(countScales(elements));
      }),
      {
        numRuns: draws(300),
        examples: [
          [
            [
              [-0, 0],
              [0, -0],
            ],
          ],
        ],
      },
    );
  });
});

describe("a correlation", () => {
  const pairs = fc.array(fc.tuple(fc.integer({ min: -30, max: 30 }), fc.integer({ min: -30, max: 30 })), {
    maxLength: 40,
  });

  it("is Pearson's coefficient, with Student's t as its significance; pairs that are not finite are left out", () => {
    const nonFinitePair = fc.constantFrom([Number.NaN, 1], [1, -Infinity]);
    fc.assert(
      fc.property(pairs, fc.array(nonFinitePair, { maxLength: 3 }), (finitePairs, otherPairs) => {
        const correlation = new Correlation();
        for (const [x = 0, y = 0] of [...finitePairs, ...otherPairs]) correlation.add(x, y);
        expect(correlation.count).toBe(finitePairs.length);
        const coefficient = pearson(finitePairs);
        expect(correlation.coefficient).toBeCloseTo(coefficient, 9);
        const clampedCoefficient = Math.max(-0.999999, Math.min(0.999999, coefficient));
        const t =
          finitePairs.length > 2
            ? clampedCoefficient * Math.sqrt((finitePairs.length - 2) / (1 - clampedCoefficient ** 2))
            : 0;
        expect(correlation.significance).toBeCloseTo(t, 1);
      }),
    );
  });
});
