/** Statistics of differences: compared with a plain count over sorted values, for every element type. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { factsOf, isScalarFormat, SCALAR_FORMAT_NAMES, valueOfCode } from "../../../src/formats/derive.js";
import { Comparison } from "../../../src/tensor/statistics/comparison.js";
import { DifferenceCount } from "../../../src/tensor/statistics/difference-count.js";
import { compareBits, type ElementType, tableOf } from "../../../src/tensor/statistics/elements.js";
import type { Cause, ErrorStatistics } from "../../../src/tensor/statistics/statistics.js";

const PLAIN = ["f32", "f64", "c64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"] as const;
const TYPES: readonly ElementType[] = [...SCALAR_FORMAT_NAMES, ...PLAIN];

const widthOf = (type: ElementType): number =>
  isScalarFormat(type) ? factsOf(type).bits : compareBits(type);

/** The value of a code, by views of its bytes. A complex number has two. */
function valuesOf(type: ElementType, code: bigint): readonly number[] {
  if (isScalarFormat(type)) return [valueOfCode(type, Number(code))];
  const view = new DataView(BigUint64Array.of(code).buffer);
  if (type === "c64") return [view.getFloat32(0, true), view.getFloat32(4, true)];
  if (type === "f32") return [view.getFloat32(0, true)];
  if (type === "f64") return [view.getFloat64(0, true)];
  const bits = compareBits(type);
  return [Number(type.startsWith("i") ? BigInt.asIntN(bits, code) : code)];
}

const sortedValues = new Map<ElementType, readonly number[]>();

/** The distance of two values of a narrow format: the difference of their ranks among all its values in ascending order. */
function distanceInOrder(type: ElementType, a: number, b: number): number {
  const codes =
    sortedValues.get(type) ??
    [
      ...new Set(
        Array.from({ length: 2 ** widthOf(type) }, (_, code) => valuesOf(type, BigInt(code))[0] ?? 0),
      ),
    ]
      .map((value) => value + 0)
      .filter((value) => !Number.isNaN(value))
      .sort((x, y) => x - y);
  sortedValues.set(type, codes);
  return Math.abs(codes.indexOf(a + 0) - codes.indexOf(b + 0));
}

/** The distance of two codes of a wide float: through zero, if the signs differ. */
function distanceOfBits(bits: number, a: bigint, b: bigint): bigint {
  const half = 1n << BigInt(bits - 1);
  const [sa, sb] = [a / half, b / half];
  const [ma, mb] = [a % half, b % half];
  if (sa !== sb) return ma + mb;
  return ma > mb ? ma - mb : mb - ma;
}

function ulpOf(type: ElementType, a: bigint, b: bigint): number {
  if (isScalarFormat(type) && widthOf(type) <= 8)
    return distanceInOrder(type, valuesOf(type, a)[0] ?? 0, valuesOf(type, b)[0] ?? 0);
  if (isScalarFormat(type) || type === "f32" || type === "f64")
    return Number(distanceOfBits(widthOf(type), a, b));
  if (type === "c64") {
    const partAt = (shift: bigint): number => {
      const [p, q] = [(a >> shift) & 0xffffffffn, (b >> shift) & 0xffffffffn];
      const areBothNaN = [p, q].every((code) => Number.isNaN(valuesOf("f32", code)[0]));
      return areBothNaN ? 0 : ulpOf("f32", p, q);
    };
    return Math.max(partAt(0n), partAt(32n));
  }
  const signed = type.startsWith("i");
  const bits = compareBits(type);
  const [x, y] = signed ? [BigInt.asIntN(bits, a), BigInt.asIntN(bits, b)] : [a, b];
  return Number(x > y ? x - y : y - x);
}

/** A code and a second one: the same, a neighbour, one of the other sign, or any. */
const pairs = (type: ElementType): fc.Arbitrary<readonly [bigint, bigint]> => {
  const bits = BigInt(widthOf(type));
  const code = fc.bigInt({ min: 0n, max: (1n << bits) - 1n });
  const change = fc.constantFrom("same", "next", "sign", "any", "zero", "ones");
  return fc.tuple(code, change, code).map(([a, change, otherCode]) => {
    const statistics = {
      same: a,
      next: a + 1n,
      sign: a ^ (1n << (bits - 1n)),
      any: otherCode,
      zero: 0n,
      ones: (1n << (bits - 1n)) - 1n,
    }[change];
    return [a, BigInt.asUintN(Number(bits), statistics)] as const;
  });
};

function bytesOf(type: ElementType, codes: readonly bigint[]): Uint8Array {
  const bytes = compareBits(type) / 8;
  return Uint8Array.from(
    codes.flatMap((code) => Array.from({ length: bytes }, (_, i) => Number((code >> BigInt(8 * i)) & 0xffn))),
  );
}

/** A copy of the bytes at an offset in a buffer. */
function shiftCodes(bytes: Uint8Array, offset: number): Uint8Array {
  const movedBytes = new Uint8Array(offset + bytes.length);
  movedBytes.set(bytes, offset);
  return movedBytes.subarray(offset);
}

interface Counts {
  different: number;
  nansOfOtherBits: number;
  maxUlp: number;
  maxAbsError: number;
  maxRelError: number;
  sqnr: number;
  causes: Record<Cause, number>;
}

/** The error of `b` relative to `a`: infinite if only one of them is infinite or nonzero. */
function relativeError(a: number, b: number): number {
  if (a === b) return 0;
  return a === 0 || !Number.isFinite(a) || !Number.isFinite(b)
    ? Number.POSITIVE_INFINITY
    : Math.abs(b - a) / Math.abs(a);
}

/** The signal-to-noise ratio of the pairs whose values are both finite. */
function sqnrOf(pairs: readonly (readonly [number, number])[]): number {
  const finite = pairs.filter((pair) => pair.every(Number.isFinite));
  const signal = finite.reduce((sum, [a]) => sum + a * a, 0);
  const noise = finite.reduce((sum, [a, b]) => sum + (b - a) ** 2, 0);
  return noise === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10(signal / noise);
}

function count(type: ElementType, codes: readonly (readonly [bigint, bigint])[]): Counts {
  const causes = { scale: 0, tie: 0, offByOne: 0, signOfZero: 0, nan: 0, wrong: 0 };
  const sqnr = sqnrOf(codes.map(([a, b]) => [valuesOf(type, a)[0] ?? 0, valuesOf(type, b)[0] ?? 0]));
  const expectedStatistics = {
    different: 0,
    nansOfOtherBits: 0,
    maxUlp: 0,
    maxAbsError: 0,
    maxRelError: 0,
    sqnr,
    causes,
  };
  for (const [a, b] of codes) {
    if (a === b) continue;
    const valuePairs = valuesOf(type, a).map((value, i) => [value, valuesOf(type, b)[i] ?? 0] as const);
    // integers of 64 bits differ although the nearest f64 may be equal
    const isInteger = !isScalarFormat(type) && !type.startsWith("f") && type !== "c64";
    const differingPairs = valuePairs.filter(([x, y]) => isInteger || !Object.is(x, y));
    if (differingPairs.length === 0) {
      expectedStatistics.nansOfOtherBits++;
      continue;
    }
    expectedStatistics.different++;
    if (differingPairs.some((pair) => pair.some(Number.isNaN))) {
      causes.nan++;
      continue;
    }
    const ulp = ulpOf(type, a, b);
    expectedStatistics.maxUlp = Math.max(expectedStatistics.maxUlp, ulp);
    if (type !== "c64")
      for (const [x, y] of differingPairs) {
        expectedStatistics.maxAbsError = Math.max(
          expectedStatistics.maxAbsError,
          x === y ? 0 : Math.abs(y - x),
        );
        expectedStatistics.maxRelError = Math.max(expectedStatistics.maxRelError, relativeError(x, y));
      }
    causes[ulp === 0 ? "signOfZero" : ulp === 1 ? "offByOne" : "wrong"]++;
  }
  return expectedStatistics;
}

describe("statistics of differences", () => {
  it.each(TYPES)("of %s are those of a plain count over values in order, in any chunks", (type) => {
    fc.assert(
      fc.property(fc.array(pairs(type), { minLength: 1, maxLength: 20 }), fc.nat(20), (codes, cut) => {
        const sides = [0, 1].map((side) => codes.map((pair) => pair[side] as bigint));
        const partialStatistics = [[0, cut], [cut]].map(([from, to]) =>
          sides.map((side) => bytesOf(type, side.slice(from, to))),
        );
        const comparison = new Comparison(type, { examples: 3 });
        for (const [a, b] of partialStatistics) comparison.add(a as Uint8Array, b as Uint8Array);
        const result = comparison.result();
        const expected = count(type, codes);
        const { different, nansOfOtherBits, maxUlp, causes } = result;
        expect({ different, nansOfOtherBits, maxUlp, causes }).toEqual(
          (({ maxAbsError: _, maxRelError: __, sqnr: ___, ...rest }) => rest)(expected),
        );
        if (type !== "c64") {
          expect(result.maxAbsError).toBe(expected.maxAbsError);
          expect(result.maxRelError).toBe(expected.maxRelError);
          if (Number.isFinite(expected.sqnr)) expect(result.sqnr).toBeCloseTo(expected.sqnr, 8);
          else expect(result.sqnr).toBe(expected.sqnr);
        }
        expect(result.elements).toBe(codes.length);
        const inBuckets = result.ulps.reduce((sum, bucket) => sum + bucket.count, 0);
        expect(inBuckets).toBe(different - causes.nan);
        const limitedCounts = Object.values(causes).map((count) => Math.min(3, count));
        expect(comparison.examples.length).toBe(limitedCounts.reduce((sum, count) => sum + count, 0));
        const indices = comparison.examples.map(({ index }) => index);
        expect(indices).toEqual([...new Set(indices)].sort((x, y) => x - y));
        for (const { index, a, b } of comparison.examples) expect([a, b]).toEqual(codes[index]);
      }),
    );
  });

  it.each(TYPES)("of %s have the elements that differ, and the first one, without errors too", (type) => {
    fc.assert(
      fc.property(fc.array(pairs(type), { maxLength: 40 }), fc.nat(20), fc.nat(7), (codes, cut, offset) => {
        const differenceCount = new DifferenceCount(type);
        const comparison = new Comparison(type);
        for (const part of [codes.slice(0, cut), [], codes.slice(cut)]) {
          const [a, b] = [0, 1].map((side) =>
            shiftCodes(
              bytesOf(
                type,
                part.map((pair) => pair[side] as bigint),
              ),
              offset * side,
            ),
          ) as [Uint8Array, Uint8Array];
          differenceCount.add(a, b);
          comparison.add(a, b);
        }
        const { different, nansOfOtherBits } = count(type, codes);
        expect({ different: differenceCount.different, nans: differenceCount.nansOfOtherBits }).toEqual({
          different,
          nans: nansOfOtherBits,
        });
        const [firstExample] = comparison.examples;
        expect(differenceCount.first).toEqual(
          firstExample && { index: firstExample.index, a: firstExample.a, b: firstExample.b },
        );
      }),
    );
  });

  it("have ties where the caller finds one, by the index of an element and its codes, in any chunks", () => {
    const cases = fc
      .constantFrom(...TYPES.filter((type) => tableOf(type)))
      .chain((type) => fc.tuple(fc.constant(type), fc.array(pairs(type), { maxLength: 20 })));
    const tiedPositions = fc.uniqueArray(fc.nat(19));
    fc.assert(
      fc.property(cases, fc.nat(20), tiedPositions, fc.boolean(), ([type, codes], cut, ties, isScaled) => {
        const examples = codes.length;
        const plainComparison = new Comparison(type, { examples });
        const comparison = new Comparison(type, {
          examples,
          isTie: (index, a, b) => {
            expect([BigInt(a), BigInt(b)]).toEqual(codes[index]);
            return ties.includes(index);
          },
        });
        for (const part of [codes.slice(0, cut), codes.slice(cut)]) {
          const side = (sideIndex: 0 | 1): Uint8Array =>
            bytesOf(
              type,
              part.map((pair) => pair[sideIndex]),
            );
          const oneValue = { a: Float32Array.of(1), b: Float32Array.of(1) };
          const scales = isScaled ? { index: new Uint32Array(part.length), ...oneValue } : undefined;
          for (const accumulator of [plainComparison, comparison]) accumulator.add(side(0), side(1), scales);
        }
        const expected = plainComparison.examples.map((example) =>
          example.cause === "offByOne" && ties.includes(example.index)
            ? { ...example, cause: "tie" }
            : example,
        );
        expect(comparison.examples).toEqual(expected);
      }),
      {
        examples: [
          [
            [
              "e4m3",
              [
                [0n, 0n],
                [0n, 1n],
              ],
            ],
            1,
            [1],
            false,
          ],
        ],
      },
    );
  });

  it.each(["f32", "bf16"] as const)("of %s add squares of equal elements in their order", (type) => {
    const shift = type === "bf16" ? 16n : 0n;
    const codeOf = (value: number): bigint =>
      BigInt(new Uint32Array(Float32Array.of(value).buffer)[0] as number) >> shift;
    // squares of 80 binades: another order of the sum rounds otherwise
    const value = fc
      .tuple(fc.integer({ min: 0, max: 2 ** 23 - 1 }), fc.integer({ min: 87, max: 127 }))
      .map(([fraction, exponent]) => BigInt((exponent << 23) | fraction) >> shift);
    fc.assert(
      fc.property(fc.array(value, { minLength: 30, maxLength: 100 }), fc.nat(29), (codes, position) => {
        const numbers = codes.map((code) => valuesOf(type, code)[0] as number);
        const signal = numbers.reduce((sum, x) => sum + x * x, 0);
        // noise about as large as the signal: near 0 dB the logarithm shows the last bit of their quotient
        const changedCodes = codes.map((code, i) =>
          i === position ? codeOf((numbers[i] as number) + Math.sqrt(signal)) : code,
        );
        const comparison = new Comparison(type);
        comparison.add(bytesOf(type, codes), bytesOf(type, changedCodes));
        const x = numbers[position] as number;
        const error = Math.abs((valuesOf(type, changedCodes[position] as bigint)[0] as number) - x);
        const equal = numbers.reduce((sum, value, i) => (i === position ? sum : sum + value * value), 0);
        expect(comparison.result().sqnr).toBe(10 * Math.log10((x * x + equal) / (error * error)));
      }),
    );
  });

  it("have the values of codes under scales, element by element", () => {
    const scale = fc.constantFrom(0, -0, 0.5, 1, 3, Number.POSITIVE_INFINITY, Number.NaN);
    const scales = fc.array(
      fc.oneof(
        scale.map((scaleCode) => [scaleCode, scaleCode]),
        fc.tuple(scale, scale),
      ),
      {
        minLength: 3,
        maxLength: 3,
      },
    );
    const element = fc.tuple(pairs("e4m3"), fc.nat(2));
    fc.assert(
      fc.property(fc.array(element, { maxLength: 40 }), scales, (elements, factors) => {
        const [ofA, ofB] = [0, 1].map((side) => Float32Array.from(factors, (pair) => pair[side] as number));
        const index = Uint32Array.from(elements, ([, position]) => position);
        const [a, b] = [0, 1].map((side) =>
          Uint8Array.from(elements, ([pair]) => Number(pair[side] as bigint)),
        );
        const results = [undefined, (code: number, factor: number) => Math.fround(code * factor)].map(
          (valueUnder) => {
            const comparison = new Comparison("e4m3", valueUnder ? { valueUnder } : {});
            comparison.add(a as Uint8Array, b as Uint8Array, {
              index,
              a: ofA as Float32Array,
              b: ofB as Float32Array,
            });
            return comparison.result();
          },
        );
        expect(results[0]).toEqual(results[1]);
        const equalElements = elements.filter(([[p, q], position]) => {
          const [x, y] = [
            Math.fround(valueOfCode("e4m3", Number(p)) * (ofA?.[position] ?? 0)),
            Math.fround(valueOfCode("e4m3", Number(q)) * (ofB?.[position] ?? 0)),
          ];
          return p === q && (Object.is(x, y) || Object.is(ofA?.[position], ofB?.[position]));
        });
        const { elements: elementCount, different, nansOfOtherBits } = results[0] as ErrorStatistics;
        expect(elementCount - different - nansOfOtherBits).toBe(equalElements.length);
      }),
    );
  });

  it("have the errors of b against a, relative to a, and the ratio of signal to noise", () => {
    const comparison = new Comparison("f32");
    const bytes = (...values: number[]) => new Uint8Array(Float32Array.from(values).buffer);
    comparison.add(bytes(1, 2, 4, Number.NaN), bytes(1, 2.5, 4, Number.NaN));
    comparison.add(bytes(Number.POSITIVE_INFINITY), bytes(Number.POSITIVE_INFINITY));
    const result = comparison.result();
    expect(result).toMatchObject({ maxAbsError: 0.5, maxRelError: 0.25, different: 1, elements: 5 });
    expect(result.sqnr).toBeCloseTo(10 * Math.log10(21 / 0.25), 12);
  });

  it("count distances in buckets that double", () => {
    const comparison = new Comparison("u16");
    const codes = (...values: number[]) => new Uint8Array(Uint16Array.from(values).buffer);
    comparison.add(codes(0, 0, 0, 0, 0, 0, 0), codes(1, 2, 3, 4, 5, 8, 9));
    expect(comparison.result().ulps).toEqual([
      { from: 1, to: 1, count: 1 },
      { from: 2, to: 2, count: 1 },
      { from: 3, to: 4, count: 2 },
      { from: 5, to: 8, count: 2 },
      { from: 9, to: 16, count: 1 },
    ]);
  });
});
