/**
 * Determines the order in which the reduce-scatter of the communication library (NCCL) adds the ranks. It adds ones, a large
 * value and its negative: the large value absorbs every one that is added before the negative cancels it.
 */

import type { Backend } from "../../backends/backend.js";
import type { DeviceRanks } from "../../backends/exchange.js";
import { memoryOf } from "../../tensor/memory.js";
import type { WideDType } from "../../tensor/shape.js";
import { withTemporary } from "../../tensor/storage.js";
import type { SumPlan } from "../plan.js";

/** The group to probe. `allGather` sends bytes to all ranks and returns the bytes of every rank. */
export interface Probing {
  readonly rank: number;
  readonly size: number;
  readonly backend: Backend;
  readonly devices: DeviceRanks;
  /** The number of elements per rank. The default is large enough for every channel of the library to add some of them. */
  readonly elements?: number | undefined;
  allGather(bytes: Uint8Array): readonly Uint8Array[];
}

/**
 * Up to this number of ranks, the order need not be known. A sum of two inputs is commutative. In a ring of three, this rank is
 * added last, and the sum of the other two inputs is commutative.
 */
const UNORDERED = 3;

/** The codes of one dtype that the probe adds. Adding 1 to the large value does not change it. */
interface AbsorbingCodes {
  /** The code of 1. */
  readonly oneCode: number;
  /** The code of a value so large that adding 1 does not change it. */
  readonly largeCode: number;
  /** The sign bit. */
  readonly sign: number;
  /** The maximum number of ranks for which sums of ones are exact and the large value absorbs them. */
  readonly maxRanks: number;
  /** The number of mantissa bits and the exponent bias of the dtype. */
  readonly mantissaBits: number;
  readonly bias: number;
}

const ABSORBING: Readonly<Record<WideDType, AbsorbingCodes>> = {
  f32: {
    oneCode: 0x3f800000,
    largeCode: 0x4e800000,
    sign: 0x80000000,
    maxRanks: 32,
    mantissaBits: 23,
    bias: 127,
  },
  bf16: { oneCode: 0x3f80, largeCode: 0x4e80, sign: 0x8000, maxRanks: 32, mantissaBits: 7, bias: 127 },
  f16: { oneCode: 0x3c00, largeCode: 0x7800, sign: 0x8000, maxRanks: 8, mantissaBits: 10, bias: 15 },
};

const ELEMENTS = 2 ** 20;

type Pair = readonly [number, number];

function pairsOf(size: number): readonly Pair[] {
  return Array.from({ length: size }, (_, b) => Array.from({ length: b }, (_, a): Pair => [a, b])).flat();
}

/**
 * The codes that a rank contributes. Element i tests pair i (modulo the number of pairs): it is the large value on the first rank
 * of the pair, its negative on the second, and 1 on all others.
 */
function codesOf(
  dtype: WideDType,
  pairs: readonly Pair[],
  rank: number,
  elements: number,
): Uint16Array | Uint32Array {
  const { oneCode, largeCode, sign } = ABSORBING[dtype];
  const codes = dtype === "f32" ? new Uint32Array(elements) : new Uint16Array(elements);
  for (let i = 0; i < elements; i++) {
    const [a, b] = pairs[i % pairs.length] as Pair;
    codes[i] = rank === a ? largeCode : rank === b ? largeCode + sign : oneCode;
  }
  return codes;
}

/** Decodes small non-negative integers. */
function numbersOf(dtype: WideDType, { buffer, byteOffset, byteLength }: Uint8Array): readonly number[] {
  if (dtype === "f32") return Array.from(new Float32Array(buffer, byteOffset, byteLength / 4));
  const codes = new Uint16Array(buffer, byteOffset, byteLength / 2);
  const { mantissaBits, bias } = ABSORBING[dtype];
  const decoded = new Map<number, number>();
  return Array.from(codes, (code) => {
    const value =
      decoded.get(code) ??
      (code === 0
        ? 0
        : (1 + (code % 2 ** mantissaBits) / 2 ** mantissaBits) * 2 ** ((code >> mantissaBits) - bias));
    decoded.set(code, value);
    return value;
  });
}

/**
 * Returns, for each pair, the number of ranks that are added after both members of the pair, for the elements of this rank. The
 * two large values cancel, together with all ones that were added before them, so the sum is the number of ones that are added
 * afterwards. Returns undefined if the elements disagree.
 */
function ranksAddedAfter(
  probing: Probing,
  dtype: WideDType,
  pairs: readonly Pair[],
): readonly number[] | undefined {
  const { backend, devices, size, rank, elements = ELEMENTS } = probing;
  const codes = codesOf(dtype, pairs, rank, elements);
  const bytes = new Uint8Array(codes.buffer);
  let sums: readonly number[] = [];
  withTemporary(memoryOf(backend), size * bytes.length, (x) => {
    withTemporary(memoryOf(backend), bytes.length, (out) => {
      for (let copyIndex = 0; copyIndex < size; copyIndex++)
        memoryOf(backend).write(x + copyIndex * bytes.length, bytes);
      devices.begin();
      devices.reduceScatter(x, out, elements, dtype);
      devices.end();
      sums = numbersOf(dtype, memoryOf(backend).readSync(out, bytes.length));
    });
  });
  const first = sums.slice(0, pairs.length);
  return sums.every((sum, i) => sum === first[i % pairs.length]) ? first : undefined;
}

/** The result of `ranksAddedAfter` on this rank if the library adds along `ring`. */
function expected(ring: readonly number[], rank: number, pairs: readonly Pair[]): readonly number[] {
  const { length: size } = ring;
  const ownIndex = ring.indexOf(rank);
  const position = (each: number): number => (ring.indexOf(each) - ownIndex - 1 + size) % size;
  return pairs.map(([a, b]) => size - 1 - Math.max(position(a), position(b)));
}

const UNKNOWN = 255;

/**
 * Returns the ring along which the library adds this dtype, equal on every rank, or undefined if it does not add along one ring.
 */
function ringOf(probing: Probing, dtype: WideDType): readonly number[] | undefined {
  const { rank, size, allGather } = probing;
  const pairs = pairsOf(size);
  const counts = ranksAddedAfter(probing, dtype, pairs);
  // Finds the rank that is added directly before this rank, which is added last. For each pair of that rank and a third rank,
  // only this rank is added after both.
  const predecessor = Array.from({ length: size }, (_, each) => each).find(
    (peer) =>
      peer !== rank &&
      counts !== undefined &&
      pairs.every(([a, b], i) => (a !== peer && b !== peer) || a === rank || b === rank || counts[i] === 1),
  );
  const predecessors = allGather(Uint8Array.of(predecessor ?? UNKNOWN)).map(([answer]) => answer as number);
  const ring = [0];
  while (ring.length < size) ring.unshift(predecessors[ring[0] as number] ?? UNKNOWN);
  const isRing = new Set(ring).size === size && !ring.includes(UNKNOWN);
  const isExpected = isRing && counts?.every((count, i) => count === expected(ring, rank, pairs)[i]);
  const allFit = allGather(Uint8Array.of(isExpected ? 1 : 0)).every(([answer]) => answer === 1);
  const first = ring.indexOf(0);
  return allFit ? [...ring.slice(first), ...ring.slice(0, first)] : undefined;
}

/** The ring of each dtype, starting at rank 0. */
export type Rings = Readonly<Partial<Record<WideDType, readonly number[]>>>;

/** Determines the rings. Every rank of the communicator calls it, before any other operation. */
export function probeRings(probing: Probing): Rings {
  const { size } = probing;
  if (size <= UNORDERED) return {};
  const types = (["f32", "bf16", "f16"] as const).filter((dtype) => size <= ABSORBING[dtype].maxRanks);
  return Object.fromEntries(types.map((dtype) => [dtype, ringOf(probing, dtype)]));
}

/** Whether the library's own reduce-scatter adds in the order of this plan. */
export function isRingOf(rings: Rings, { order, sum }: SumPlan): boolean {
  if (order.length <= UNORDERED) return true;
  const first = order.indexOf(0);
  const ring = rings[sum];
  return ring?.every((each, i) => each === order[(first + i) % order.length]) === true;
}
