/** The probe finds the ring along which a library's reduce-scatter adds, and every rank finds the same ring. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { isRingOf, probeRings, type Rings } from "../../../../src/collectives/devices/ring.js";
import { orderOf, type SumPlan } from "../../../../src/collectives/plan.js";
import { valueOfCode } from "../../../../src/formats/derive.js";
import type { Backend, WideDType } from "../../../../src/index.js";
import { storageBits } from "../../../../src/tensor/shape.js";
import { IS_FULL } from "../../harness/full.js";
import { roundTo } from "../../harness/ranks/devices.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });

/** The number of elements after which the inputs of the probe repeat, for any number of ranks here. */
const PERIODS = 3840;
/** The elements of each rank; undefined: as many as GPUs add. */
const ELEMENTS = IS_FULL ? undefined : 2 * PERIODS + 960;

/**
 * The order in which a library adds the parts of an element of rank `owner`; an owner's own part need not be the last. Elements
 * of several channels may have several orders.
 */
type Library = (dtype: WideDType, owner: number, element: number) => readonly number[];

/** The trials of all ranks so far: their inputs of each sum, and the messages that they exchanged. */
class ExchangeRecord {
  readonly #contributions = new Map<string, Uint8Array>();

  /** The contribution of each rank at a step; undefined if a rank has not reached the step. */
  contributionsAt(
    place: string,
    rank: number,
    contribution: Uint8Array,
    size: number,
  ): readonly Uint8Array[] | undefined {
    this.#contributions.set(`${place} ${rank}`, contribution);
    const contributions = Array.from({ length: size }, (_, otherRank) =>
      this.#contributions.get(`${place} ${otherRank}`),
    );
    return contributions.some((contribution) => contribution === undefined)
      ? undefined
      : (contributions as Uint8Array[]);
  }
}

function numbers(dtype: WideDType, bytes: Uint8Array): Float32Array {
  const { buffer } = bytes.slice();
  if (dtype === "f32") return new Float32Array(buffer);
  const values = valuesOf(dtype);
  return Float32Array.from(new Uint16Array(buffer), (code) => values[code] as number);
}

const valuesByDtype = new Map<WideDType, Float32Array>();

/** The value of each code of a type of two bytes. */
function valuesOf(dtype: "bf16" | "f16"): Float32Array {
  const cachedValues = valuesByDtype.get(dtype);
  if (cachedValues) return cachedValues;
  const values = Float32Array.from({ length: 0x10000 }, (_, code) => valueOfCode(dtype, code));
  valuesByDtype.set(dtype, values);
  return values;
}

function encodeValues(dtype: WideDType, values: Float32Array): Uint8Array {
  if (dtype === "f32") return new Uint8Array(values.slice().buffer);
  const codes = codesOf(dtype);
  return new Uint8Array(Uint16Array.from(values, (value) => codes.get(value) as number).buffer);
}

const codesByDtype = new Map<WideDType, ReadonlyMap<number, number>>();

/** The code of each value of a type of two bytes. */
function codesOf(dtype: "bf16" | "f16"): ReadonlyMap<number, number> {
  const cachedCodes = codesByDtype.get(dtype);
  if (cachedCodes) return cachedCodes;
  const codes = new Map(Array.from({ length: 0x8000 }, (_, code) => [valueOfCode(dtype, code), code]));
  codesByDtype.set(dtype, codes);
  return codes;
}

/**
 * Runs the probe of one rank. Missing contributions of other ranks are replaced by arbitrary ones; a later run has the real ones.
 */
function probe(
  backend: Backend,
  size: number,
  rank: number,
  library: Library,
  record: ExchangeRecord,
): Rings {
  let [numSums, numGathers] = [0, 0];
  const { memory } = backend;
  const reduceScatter = (x: number, out: number, count: number, dtype: WideDType): void => {
    const bytes = (count * storageBits(dtype)) / 8;
    const part = PERIODS * (storageBits(dtype) / 8);
    const contributions = record.contributionsAt(
      `sum ${numSums++}`,
      rank,
      memory.readSync(x + rank * bytes, part),
      size,
    );
    if (!contributions) return;
    const valuesByRank = contributions.map((bytesOfRank) => numbers(dtype, bytesOfRank));
    const round = dtype === "f32" ? Math.fround : roundTo(dtype);
    const total = (valuesByRank[0] as Float32Array).map((_, i) =>
      library(dtype, rank, i)
        .map((contributor) => (valuesByRank[contributor] as Float32Array)[i] as number)
        .reduce((sum, addend) => round(sum + addend)),
    );
    const encodedSums = encodeValues(dtype, total);
    for (let offset = 0; offset < bytes; offset += encodedSums.length)
      memory.write(out + offset, encodedSums.subarray(0, Math.min(encodedSums.length, bytes - offset)));
  };
  const devices = { begin() {}, end() {}, reduceScatter };
  const allGather = (contribution: Uint8Array): readonly Uint8Array[] =>
    record.contributionsAt(`tell ${numGathers++}`, rank, contribution, size) ??
    Array.from({ length: size }, () => contribution);
  return probeRings({ rank, size, backend, devices: devices as never, elements: ELEMENTS, allGather });
}

/** The result of each rank's probe. */
function probeAll(size: number, library: Library): readonly Rings[] {
  const record = new ExchangeRecord();
  let ringsByRank: readonly Rings[] = [];
  // pass n is right about results that depend on up to n collectives: a sum, and two exchanges of messages
  for (let pass = 0; pass < 4; pass++)
    ringsByRank = Array.from({ length: size }, (_, rank) => probe(backend(), size, rank, library, record));
  return ringsByRank;
}

const planOf = (order: readonly number[], sum: WideDType): SumPlan => ({
  algorithm: "ring",
  order,
  sum,
  splits: order.map(() => 1),
});

/** A ring in the form that the probe reports: from rank 0 on. */
const fromZero = (order: readonly number[]): readonly number[] => [
  ...order.slice(order.indexOf(0)),
  ...order.slice(0, order.indexOf(0)),
];

describe("the probe of a library's sums", () => {
  it("finds the ring of each dtype, and none where the library adds otherwise, on every rank", () => {
    const rings = { f32: [2, 0, 1, 3], f16: [0, 1, 2, 3] } as const;
    const library: Library = (dtype, owner) =>
      dtype === "bf16" ? [0, 1, 2, 3] : orderOf(planOf(rings[dtype], dtype), owner);
    for (const foundRings of probeAll(4, library))
      expect(foundRings).toEqual({ f32: [0, 1, 3, 2], bf16: undefined, f16: [0, 1, 2, 3] });
  });

  it("finds any ring of five ranks, and none if the sums of a single rank, or some of them, have another order", () => {
    const order = fc.shuffledSubarray([0, 1, 2, 3, 4], { minLength: 5 });
    /** The elements that have another order, on one rank: all, none, and those of one channel of sixteen. */
    const hasOtherOrder: Readonly<Record<WideDType, (element: number) => boolean>> = {
      f32: () => true,
      bf16: () => false,
      f16: (element) => element % 960 >= 900,
    };
    fc.assert(
      fc.property(order, fc.nat(4), (ring, oddRank) => {
        const ringsByRank = probeAll(5, (dtype, owner, element) => {
          const [a, b, c, ...otherRanks] = orderOf(planOf(ring, dtype), owner) as [number, number, number];
          return owner === oddRank && hasOtherOrder[dtype](element)
            ? [a, c, b, ...otherRanks]
            : [a, b, c, ...otherRanks];
        });
        for (const rings of ringsByRank)
          expect(rings).toEqual({ f32: undefined, bf16: fromZero(ring), f16: undefined });
      }),
      { numRuns: 1 },
    );
  });

  it("is not needed for up to three ranks", () => {
    for (const size of [1, 2, 3]) expect(probeAll(size, () => [])).toEqual(Array(size).fill({}));
  });
});

it("a plan is along a known ring from whichever rank it begins, and along no other", () => {
  const order = (size: number) => fc.shuffledSubarray([...Array(size).keys()], { minLength: size });
  const cases = fc
    .integer({ min: 1, max: 7 })
    .chain((size) => fc.tuple(order(size), order(size), fc.nat(), fc.constantFrom("f32", "bf16", "f16")));
  fc.assert(
    fc.property(cases, ([ring, otherOrder, rotation, sum]) => {
      const shift = rotation % ring.length;
      const rotatedRing = [...ring.slice(shift), ...ring.slice(0, shift)];
      const rings = { [sum]: fromZero(ring) };
      expect(isRingOf(rings, planOf(rotatedRing, sum))).toBe(true);
      const isSame = ring.length <= 3 || String(fromZero(otherOrder)) === String(fromZero(ring));
      expect(isRingOf(rings, planOf(otherOrder, sum))).toBe(isSame);
      expect(isRingOf({}, planOf(ring, sum))).toBe(ring.length <= 3);
    }),
  );
});
