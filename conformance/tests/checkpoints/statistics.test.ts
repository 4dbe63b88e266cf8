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
import { type Drawn, floats, KINDS, ofByte, weightOf, weights } from "./files/weights.js";

const count = <T>(all: Iterable<T>, test: (each: T) => boolean): number => [...all].filter(test).length;
const largest = (all: readonly number[]): number => all.reduce((most, each) => Math.max(most, each), 0);
const sum = (all: readonly number[]): number => all.reduce((total, each) => total + each, 0);

/** Elements whose magnitudes are grouped by a key, in the order of their first element. */
function grouped(magnitudes: readonly number[], keyOf: (index: number) => number): Map<number, number[]> {
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
  const all = pairs.filter((pair) => pair.every(Number.isFinite));
  const mean = (axis: 0 | 1): number => sum(all.map((pair) => pair[axis])) / all.length;
  const [x, y] = [mean(0), mean(1)];
  const product = (a: 0 | 1, b: 0 | 1): number =>
    sum(all.map((pair) => (pair[a] - (a ? y : x)) * (pair[b] - (b ? y : x))));
  const spread = Math.sqrt(product(0, 0) * product(1, 1));
  return spread > 0 ? product(0, 1) / spread : 0;
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
  const amaxOf = (group: readonly number[]): number => largest(group.filter((each) => !Number.isNaN(each)));
  const blocks = [...grouped(magnitudes, blockOf)].map(([index, group]) => ({
    amax: amaxOf(group),
    squares: sum(group.filter((each) => !Number.isNaN(each)).map((each) => each * each)),
    hasNaN: group.some(Number.isNaN),
    stored: scales.values[index] as number,
  }));
  const nonzero = blocks.filter(({ amax }) => amax > 0);
  const rowAmaxes = [...grouped(magnitudes, (i) => Math.floor(i / columns)).values()].map(amaxOf);
  const reading = (of: (stored: number) => number) => {
    const finite = nonzero
      .map((each) => ({ ...each, scale: Math.abs(scaleOf(scales, of(each.stored))) }))
      .filter(({ scale }) => Number.isFinite(scale));
    return {
      amax: largest(finite.map(({ amax, scale }) => amax * scale)),
      rms: Math.sqrt(sum(finite.map(({ squares, scale }) => squares * scale * scale)) / elements),
    };
  };
  const stored = [...scales.values];
  const finite = stored.filter(Number.isFinite);
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
        zeroScaled: count(nonzero, (each) => each.stored === 0),
        withNaN: count(blocks, ({ hasNaN }) => hasNaN),
      },
      scale: {
        count: stored.length,
        min: finite.length === 0 ? Number.NaN : Math.min(...finite),
        max: finite.length === 0 ? Number.NaN : Math.max(...finite),
        zero: count(stored, (scale) => scale === 0),
        negative: count(finite, (scale) => scale < 0),
        notFinite: stored.length - finite.length,
        powersOfTwo: count(finite, (scale) => scale > 0 && Number.isInteger(Math.log2(scale))),
      },
    },
    counts: values.map((_, code) => count(codes, (each) => each === code)),
    reading: reading((scale) => scale),
    inverse: reading((scale) => 1 / scale),
    coefficient: pearson(nonzero.map((each) => [Math.log2(each.stored), Math.log2(each.squares) / 2])),
  };
}

const isNear = (a: number, b: number): boolean => a === b || Math.abs(a - b) <= 1e-9 * Math.abs(b);

describe("statistics", () => {
  it.each(KINDS)("of $convention, scales $scale by $kind, are those of plain loops", async (kind) => {
    const kernels = await Kernels.open();
    await fc.assert(
      fc.asyncProperty(weights(kind), async (drawn) => {
        const read: number[] = [];
        const scales = (await readByteScales(kernels, drawn.weight)) ?? (await readScales(drawn.weight));
        const found = await statisticsOf(kernels, drawn.weight, scales, (bytes) => {
          read.push(...bytes);
        });
        const expected = await plainStatistics(drawn);
        expect(found).toMatchObject(expected.integers);
        expect([...found.counts]).toEqual([...expected.counts]);
        expect([found.amax, found.inverse.amax]).toEqual([expected.reading.amax, expected.inverse.amax]);
        expect(isNear(found.rms, expected.reading.rms)).toBe(true);
        expect(isNear(found.inverse.rms, expected.inverse.rms)).toBe(true);
        expect(found.correlation.coefficient).toBeCloseTo(expected.coefficient, 6);
        const { shard, entry } = drawn.weight.codes;
        expect(read).toEqual([...(await shard.read(entry))]);
      }),
      { numRuns: draws(30) },
    );
  });
});

function counted(values: readonly number[]) {
  const counter = new ScaleCounter();
  for (const value of values) counter.add(Math.fround(value));
  return counter.statistics;
}

/** A weight with its scales in swizzled order, if its grid has whole tiles. */
function swizzled({ weight }: Drawn, isSwizzled: boolean): QuantizedWeight {
  return { ...weight, geometry: { ...weight.geometry, swizzled: isSwizzled } };
}

describe("statistics by the bytes of scales", () => {
  const byteKinds = KINDS.filter(({ scale, kind }) => fileBytes(scale, [1]) === 1 && kind === "group");
  const making = fc.record({
    rows: fc.constant(128),
    columns: fc.integer({ min: 1, max: 2 }),
    lead: fc.integer({ min: 1, max: 3 }),
    palette: fc.array(fc.integer({ min: 0, max: 255 }).map(ofByte), { minLength: 1, maxLength: 6 }),
    seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    global: floats,
    globals: fc.array(floats, { minLength: 3, maxLength: 3 }),
    used: fc.integer({ min: 1, max: 16 }),
    isSwizzled: fc.boolean(),
    isStacked: fc.boolean(),
  });

  it.each(byteKinds)(
    "of $convention are those by their values, in both orders and of stacks",
    async (kind) => {
      const kernels = await Kernels.open();
      const hasGlobal = conventionOf(kind.convention).global !== undefined;
      await fc.assert(
        fc.asyncProperty(making, async ({ isSwizzled, isStacked, globals, columns, global, ...rest }) => {
          const drawn = weightOf(kind, {
            ...rest,
            columns: columns * 4 * kind.block[1],
            global: hasGlobal ? global : undefined,
          });
          const stack = isStacked && rest.lead > 1 && hasGlobal ? globals.slice(0, rest.lead) : undefined;
          const bytes = new Uint8Array(Float32Array.from(stack ?? []).buffer);
          const shard = new MemorySource("globals", [
            {
              name: "global",
              dtype: "F32",
              shape: [rest.lead],
              bytes: stack ? bytes : new Uint8Array(4 * rest.lead),
            },
          ]);
          const weight = {
            ...swizzled(drawn, isSwizzled),
            ...(stack ? { global: { shard, entry: shard.entry("global") } } : {}),
          };
          const byValue = await statisticsOf(kernels, weight, await readScales(weight));
          const scales = await readByteScales(kernels, weight);
          if (!scales) throw new Error("these scales are bytes");
          expect(scales.oppositeLayout).toBeDefined();
          const found = await statisticsOf(kernels, weight, scales);
          const exact = ({
            rms,
            inverse,
            correlation,
            oppositeCorrelation,
            tallies: _,
            ...others
          }: Statistics) => ({
            ...others,
            amaxes: [inverse.amax, correlation.count, oppositeCorrelation?.count],
          });
          expect(exact(found)).toEqual(exact(byValue));
          expect(isNear(found.rms, byValue.rms)).toBe(true);
          expect(isNear(found.inverse.rms, byValue.inverse.rms)).toBe(true);
          for (const key of ["correlation", "oppositeCorrelation"] as const)
            expect(found[key]?.coefficient ?? 0).toBeCloseTo(byValue[key]?.coefficient ?? 0, 6);
        }),
        { numRuns: draws(20) },
      );
    },
  );
});

describe("statistics of scales", () => {
  it("do not depend on their order", () => {
    const zeros = fc.constantFrom(0, -0);
    const shuffled = fc
      .array(fc.oneof(floats, zeros), { maxLength: 12 })
      .chain((all) => fc.tuple(fc.constant(all), fc.shuffledSubarray(all, { minLength: all.length })));
    fc.assert(
      fc.property(shuffled, ([all, others]) => {
        expect(counted(others)).toEqual(counted(all));
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
    const odd = fc.constantFrom([Number.NaN, 1], [1, -Infinity]);
    fc.assert(
      fc.property(pairs, fc.array(odd, { maxLength: 3 }), (all, others) => {
        const correlation = new Correlation();
        for (const [x = 0, y = 0] of [...all, ...others]) correlation.add(x, y);
        expect(correlation.count).toBe(all.length);
        const r = pearson(all);
        expect(correlation.coefficient).toBeCloseTo(r, 9);
        const bounded = Math.max(-0.999999, Math.min(0.999999, r));
        const t = all.length > 2 ? bounded * Math.sqrt((all.length - 2) / (1 - bounded ** 2)) : 0;
        expect(correlation.significance).toBeCloseTo(t, 1);
      }),
    );
  });
});
