/**
 * Compares the codes of all f32 bit patterns under one encoding with the oracle's step function, one chunk of 2^24 at a
 * time.
 */
import type { Backend } from "../../../src/backends/backend.js";
import type { OverflowName, RoundingName } from "../../../src/backends/ops.js";
import { factsOf } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { type Step, steps } from "../../oracle/core/scalar.js";

/** The number of bit patterns in a chunk; there are 256 chunks. */
export const CHUNK = 2 ** 24;

export interface Encoding {
  readonly format: ScalarFormat;
  readonly rounding: RoundingName;
  readonly overflow: OverflowName;
}

/** An input whose code differs from the oracle's. */
export interface Disagreement {
  readonly bits: number;
  readonly actual: number;
  readonly expected: readonly number[];
}

/** The number of bit patterns encoded at a time; they fit in the cache. */
const BLOCK = 2 ** 19;

type Codes = Uint8Array | Uint16Array | Uint32Array;

/**
 * Compares the reference's codes of a chunk with the oracle's. A stochastic result depends on random bits, so it may be either of
 * the two codes around the input.
 */
export class Exhaustion {
  readonly #expected: readonly { readonly table: readonly Step[]; readonly codes: Codes }[];
  readonly #bits: number;
  readonly #values = new Float32Array(BLOCK);
  readonly #patterns = new Uint32Array(this.#values.buffer);

  constructor(readonly encoding: Encoding) {
    const { format, rounding, overflow } = encoding;
    const modes: RoundingName[] =
      rounding === "stochastic" ? ["towardPositive", "towardNegative"] : [rounding];
    this.#expected = modes.map((mode) => ({
      table: steps(SCALAR_FORMATS[format], mode, overflow),
      codes: allocateCodes(factsOf(format).storageBits),
    }));
    this.#bits = factsOf(format).storageBits;
  }

  /** The first input of the chunk whose codes differ; undefined if none does. */
  check(backend: Backend, chunk: number): Disagreement | undefined {
    for (let begin = chunk * CHUNK; begin < (chunk + 1) * CHUNK; begin += BLOCK) {
      const disagreement = this.#checkBlock(backend, begin);
      if (disagreement) return disagreement;
    }
    return undefined;
  }

  #checkBlock(backend: Backend, begin: number): Disagreement | undefined {
    const actual = this.#encode(backend, begin);
    const expected = this.#expected.map(({ table, codes }) => fill(codes, table, begin));
    const [lower, upper] = expected as [Codes, Codes | undefined];
    if (upper === undefined && sameBytes(actual, lower)) return undefined;
    const index = findDisagreement(actual, lower, upper ?? lower);
    if (index < 0) return undefined;
    return {
      bits: begin + index,
      actual: actual[index] ?? 0,
      expected: expected.map((codes) => codes[index] ?? 0),
    };
  }

  #encode(backend: Backend, begin: number): Codes {
    using _scope = new Scope();
    for (let i = 0, firstPattern = begin | 0; i < BLOCK; i++) this.#patterns[i] = firstPattern + i;
    const x = tensor(backend, this.#values, [BLOCK], "f32");
    const codes = encode(x, { ...this.encoding, seed: 1n }).dataSync();
    return this.#bits === 4 ? unpack(codes as Uint8Array) : (codes as Codes);
  }
}

/** Fills `codes` with the values of a step function for the bit patterns from `begin` on. */
function fill(codes: Codes, table: readonly Step[], begin: number): Codes {
  const end = begin + codes.length;
  let i = findStep(table, begin);
  for (let start = begin; start < end; i++) {
    const stop = Math.min(table[i + 1]?.first ?? 2 ** 32, end);
    codes.fill(table[i]?.code ?? 0, start - begin, stop - begin);
    start = stop;
  }
  return codes;
}

function findStep(table: readonly Step[], bits: number): number {
  let [low, high] = [0, table.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((table[middle]?.first ?? 0) <= bits) low = middle;
    else high = middle;
  }
  return low;
}

/** The first index at which `actual` equals neither code; -1 if there is none. */
function findDisagreement(actual: Codes, lower: Codes, upper: Codes): number {
  for (let i = 0; i < actual.length; i++) {
    if (actual[i] !== lower[i] && actual[i] !== upper[i]) return i;
  }
  return -1;
}

function allocateCodes(bits: number): Codes {
  if (bits <= 8) return new Uint8Array(BLOCK);
  return bits === 16 ? new Uint16Array(BLOCK) : new Uint32Array(BLOCK);
}

function sameBytes(a: Codes, b: Codes): boolean {
  return Buffer.compare(asBytes(a), asBytes(b)) === 0;
}

function asBytes(codes: Codes): Uint8Array {
  return new Uint8Array(codes.buffer, codes.byteOffset, codes.byteLength);
}

function unpack(packed: Uint8Array): Uint8Array {
  const unpacked = new Uint8Array(packed.length * 2);
  for (let i = 0; i < packed.length; i++) {
    const byte = packed[i] as number;
    unpacked[2 * i] = byte & 15;
    unpacked[2 * i + 1] = byte >> 4;
  }
  return unpacked;
}
