/** In which order the library's own reduce-scatter adds, found out by sums that swallow what was added before. */
import type { Backend } from "../../backends/backend.js";
import type { DeviceRanks } from "../../backends/exchange.js";
import type { WideDType } from "../../tensor/shape.js";
import { withTemporary } from "../../tensor/storage.js";
import type { SumPlan } from "../plan.js";

/** Whose ring it is; `tell` gives what every rank says. */
export interface Probing {
  readonly rank: number;
  readonly size: number;
  readonly backend: Backend;
  readonly devices: DeviceRanks;
  tell(bytes: Uint8Array): readonly Uint8Array[];
}

/** Up to so many ranks every order adds the same: a sum of two has none, and the two before the last of three are one. */
const UNORDERED = 3;

/** The codes of one type that the probe adds up. */
interface Swallowing {
  /** The code of 1. */
  readonly one: number;
  /** The code of a value so large that adding ones to it changes nothing. */
  readonly large: number;
  /** The sign bit. */
  readonly sign: number;
  /** The largest number of ranks for which that holds. */
  readonly most: number;
  /** The layout of a code. */
  readonly mantissaBits: number;
  readonly bias: number;
}

const SWALLOWING: Readonly<Record<WideDType, Swallowing>> = {
  f32: { one: 0x3f800000, large: 0x4e800000, sign: 0x80000000, most: 32, mantissaBits: 23, bias: 127 },
  bf16: { one: 0x3f80, large: 0x4e80, sign: 0x8000, most: 32, mantissaBits: 7, bias: 127 },
  f16: { one: 0x3c00, large: 0x7800, sign: 0x8000, most: 8, mantissaBits: 10, bias: 15 },
};

/** Elements of each rank: enough for every channel of the library to add some. */
const ELEMENTS = 2 ** 20;

type Pair = readonly [number, number];

function pairsOf(size: number): readonly Pair[] {
  return Array.from({ length: size }, (_, b) => Array.from({ length: b }, (_, a): Pair => [a, b])).flat();
}

/** The codes that a rank gives: element i is large where the rank is the first of pair i, its negative where it is the second. */
function codesOf(dtype: WideDType, pairs: readonly Pair[], rank: number): Uint16Array | Uint32Array {
  const { one, large, sign } = SWALLOWING[dtype];
  const codes = dtype === "f32" ? new Uint32Array(ELEMENTS) : new Uint16Array(ELEMENTS);
  for (let i = 0; i < ELEMENTS; i++) {
    const [a, b] = pairs[i % pairs.length] as Pair;
    codes[i] = rank === a ? large : rank === b ? large + sign : one;
  }
  return codes;
}

/** Small whole numbers, by their codes in a type. */
function numbersOf(dtype: WideDType, bytes: Uint8Array): readonly number[] {
  const { buffer, byteOffset } = bytes;
  if (dtype === "f32") return Array.from(new Float32Array(buffer, byteOffset, ELEMENTS));
  const codes = new Uint16Array(buffer, byteOffset, ELEMENTS);
  const { mantissaBits, bias } = SWALLOWING[dtype];
  const known = new Map<number, number>();
  return Array.from(codes, (code) => {
    const value =
      known.get(code) ??
      (code === 0
        ? 0
        : (1 + (code % 2 ** mantissaBits) / 2 ** mantissaBits) * 2 ** ((code >> mantissaBits) - bias));
    known.set(code, value);
    return value;
  });
}

/**
 * How many ranks are added behind both of each pair, for the elements of this rank; undefined where that is not always the same.
 * What comes before the later of a pair is swallowed.
 */
function behind(probing: Probing, dtype: WideDType, pairs: readonly Pair[]): readonly number[] | undefined {
  const { backend, devices, size, rank } = probing;
  const codes = codesOf(dtype, pairs, rank);
  const bytes = new Uint8Array(codes.buffer);
  let sums: readonly number[] = [];
  withTemporary(backend.memory, size * bytes.length, (x) => {
    withTemporary(backend.memory, bytes.length, (out) => {
      for (let each = 0; each < size; each++) backend.memory.write(x + each * bytes.length, bytes);
      devices.begin();
      devices.reduceScatter(x, out, ELEMENTS, dtype);
      devices.end();
      sums = numbersOf(dtype, backend.memory.readSync(out, bytes.length));
    });
  });
  const first = sums.slice(0, pairs.length);
  return sums.every((sum, i) => sum === first[i % pairs.length]) ? first : undefined;
}

/** What `behind` gives for this rank on a ring. */
function expected(ring: readonly number[], rank: number, pairs: readonly Pair[]): readonly number[] {
  const { length: size } = ring;
  const own = ring.indexOf(rank);
  const place = (each: number): number => (ring.indexOf(each) - own - 1 + size) % size;
  return pairs.map(([a, b]) => size - 1 - Math.max(place(a), place(b)));
}

const UNKNOWN = 255;

/** The ring of one type, the same on every rank; undefined where there is none. */
function ringOf(probing: Probing, dtype: WideDType): readonly number[] | undefined {
  const { rank, size, tell } = probing;
  const pairs = pairsOf(size);
  const own = behind(probing, dtype, pairs);
  // exactly one rank is added behind all others but this one: the pair of it and any but this one has none but this one behind
  const before = Array.from({ length: size }, (_, each) => each).find(
    (each) =>
      each !== rank &&
      own !== undefined &&
      pairs.every(([a, b], i) => (a !== each && b !== each) || a === rank || b === rank || own[i] === 1),
  );
  const told = tell(Uint8Array.of(before ?? UNKNOWN)).map(([each]) => each as number);
  const ring = [0];
  while (ring.length < size) ring.unshift(told[ring[0] as number] ?? UNKNOWN);
  const isRing = new Set(ring).size === size && !ring.includes(UNKNOWN);
  const fits = isRing && own?.every((count, i) => count === expected(ring, rank, pairs)[i]);
  const all = tell(Uint8Array.of(fits ? 1 : 0)).every(([each]) => each === 1);
  const first = ring.indexOf(0);
  return all ? [...ring.slice(first), ...ring.slice(0, first)] : undefined;
}

/** Rings by type, each from rank 0 on. */
export type Rings = Readonly<Partial<Record<WideDType, readonly number[]>>>;

/** Every rank of the communicator calls it, before anything else. */
export function probeRings(probing: Probing): Rings {
  const { size } = probing;
  if (size <= UNORDERED) return {};
  const types = (["f32", "bf16", "f16"] as const).filter((dtype) => size <= SWALLOWING[dtype].most);
  return Object.fromEntries(types.map((dtype) => [dtype, ringOf(probing, dtype)]));
}

/** Whether the library adds by this plan. */
export function isRingOf(rings: Rings, { order, sum }: SumPlan): boolean {
  if (order.length <= UNORDERED) return true;
  const first = order.indexOf(0);
  const ring = rings[sum];
  return ring?.every((each, i) => each === order[(first + i) % order.length]) === true;
}
