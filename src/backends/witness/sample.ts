/** The sampled part of one call: what is read of its tensors, and how it is compared with the reference. */
import { randomWords } from "../../random.js";
import { memoryOf } from "../../tensor/memory.js";
import { type DType, type Shape, storageBits } from "../../tensor/shape.js";
import { withTemporary } from "../../tensor/storage.js";
import { Tensor } from "../../tensor/tensor.js";
import type { Backend } from "../backend.js";
import type { OpArgs, OpName } from "../ops.js";
import type { WitnessDifference } from "./options.js";

/** Elements that were compared. */
export interface Compared {
  readonly elements: number;
  readonly differing: number;
  /** The first elements that differ. */
  readonly differences: readonly WitnessDifference[];
}

/** Computes the sampled part on the reference, and compares it with the results that were read. */
export type Compare = (reference: Backend) => Compared;

/** A part of one call. Its inputs are being read. */
export interface Sample {
  /** Begins to read the results. Called after the operation was enqueued. */
  readonly results: () => Promise<Compare>;
}

/** A call of an operation that is sampled. */
export interface SampledCall<K extends OpName> {
  readonly backend: Backend;
  readonly args: OpArgs[K];
  /** Runs an operation on the backend, unseen by the witness. */
  readonly run: <L extends OpName>(op: L, args: OpArgs[L]) => void;
  /** The number of elements to compare. */
  readonly elements: number;
  /** Returns `count` different integers from 0 to `total` - 1, ascending. They are the same in every run. */
  readonly choose: (total: number, count: number) => readonly number[];
}

/** Begins to sample a call. Returns the reason if it cannot be sampled. */
export type Sampler<K extends OpName> = (call: SampledCall<K>) => Sample | string;

/** Returns the function `choose` of a call. Each of its uses within the call draws different numbers. */
export function chooser(seed: bigint, call: number): (total: number, count: number) => readonly number[] {
  let draw = 0;
  return (total, count) => {
    if (count >= total) return Array.from({ length: total }, (_, i) => i);
    const chosen = new Set<number>();
    while (chosen.size < count) {
      const offset = (BigInt(call) << 16n) + BigInt(draw++);
      for (const word of randomWords({ seed, offset }, 4 * count)) {
        if (chosen.size === count) break;
        chosen.add(Math.floor((word / 2 ** 32) * total));
      }
    }
    return [...chosen].sort((a, b) => a - b);
  };
}

/** Whether ranges of `count` elements that begin at multiples of `count` are whole bytes. */
export function isWholeBytes({ dtype }: Tensor, count: number): boolean {
  return (storageBits(dtype) * count) % 8 === 0;
}

/**
 * Reads the ranges of `count` elements that begin at the elements `begins`, and returns them one after the other. The ranges must
 * be whole bytes. They are gathered on the device, so that one copy to the host is enough.
 */
export function readRanges(tensor: Tensor, begins: readonly number[], count: number): Promise<Uint8Array> {
  const bits = storageBits(tensor.dtype);
  const bytes = (bits * count) / 8;
  const total = begins.length * bytes;
  if (total === 0) return Promise.resolve(new Uint8Array(0));
  const memory = memoryOf(tensor.backend);
  const addressOf = (begin: number): number => tensor.address + (bits * begin) / 8;
  const first = begins[0] as number;
  if (begins.every((begin, i) => begin === first + i * count)) return memory.read(addressOf(first), total);
  return withTemporary(memory, total, (address) => {
    for (const [i, begin] of begins.entries()) memory.copy(address + i * bytes, addressOf(begin), bytes);
    return memory.read(address, total);
  });
}

/** Reads a whole tensor. */
export function readWhole(tensor: Tensor): Promise<Uint8Array> {
  return readRanges(tensor, [0], tensor.size);
}

/** Creates a tensor of the reference from bytes that were read. */
export function tensorOfBytes<D extends DType>(
  reference: Backend,
  bytes: Uint8Array,
  shape: Shape,
  dtype: D,
): Tensor<D> {
  const tensor = new Tensor(reference, dtype, shape);
  memoryOf(reference).write(tensor.address, bytes);
  return tensor;
}

const MAX_DIFFERENCES = 16;

/** One result of a call, as bytes, from the backend and from the reference. */
export interface ResultBytes {
  readonly name: string;
  readonly actual: Uint8Array;
  readonly expected: Uint8Array;
  readonly dtype: DType;
  /** The index, in the whole result, of an element of the sampled part. */
  readonly indexOf: (element: number) => readonly number[];
}

/** The bits of infinity, above which the bits of a magnitude are NaN. */
const INFINITY: Readonly<Partial<Record<DType, number>>> = { f32: 0x7f800000, bf16: 0x7f80, f16: 0x7c00 };

/** Whether the bits of an element of a wide dtype are NaN. */
function isNaNOf(dtype: DType, bits: string): boolean {
  const infinity = INFINITY[dtype];
  if (infinity === undefined) return false;
  const sign = 2 ** (storageBits(dtype) - 1);
  return Number.parseInt(bits, 16) % sign > infinity;
}

/** Compares the bits of all elements of the sampled results. All NaN of a wide dtype are equal. */
export function compareResults(results: readonly ResultBytes[]): Compared {
  let elements = 0;
  let differing = 0;
  const differences: WitnessDifference[] = [];
  for (const { name, actual, expected, dtype, indexOf } of results) {
    const bits = storageBits(dtype);
    const count = Math.floor((8 * expected.length) / bits);
    elements += count;
    for (let i = 0; i < count; i++) {
      const [actualBits, expectedBits] = [bitsAt(actual, i, bits), bitsAt(expected, i, bits)];
      if (actualBits === expectedBits || (isNaNOf(dtype, actualBits) && isNaNOf(dtype, expectedBits)))
        continue;
      differing++;
      if (differences.length < MAX_DIFFERENCES)
        differences.push({ result: name, index: indexOf(i), actual: actualBits, expected: expectedBits });
    }
  }
  return { elements, differing, differences };
}

/** The bits of an element in hexadecimal. Elements of fewer than 8 bits share bytes, the first in the low bits. */
function bitsAt(bytes: Uint8Array, i: number, bits: number): string {
  if (bits < 8) {
    const byte = bytes[Math.floor((i * bits) / 8)] as number;
    return ((byte >> ((i * bits) % 8)) & ((1 << bits) - 1)).toString(16);
  }
  const size = bits / 8;
  const element = bytes.subarray(i * size, (i + 1) * size);
  return [...element]
    .reverse()
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
}
