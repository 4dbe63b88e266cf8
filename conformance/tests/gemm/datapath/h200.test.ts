// The reference's `hopper` datapath equals an H200 in every bit of every element of recorded products.
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  type Backend,
  gemm,
  openBackend,
  type ScalarFormat,
  Scope,
  type Tensor,
  tensor,
} from "../../../../src/index.js";
import type { RecordedGemm } from "../../harness/gemm/recorded-gemm.js";

/** A recorded product; the file has the first 512 elements of its result. */
interface Case extends RecordedGemm {
  readonly seed: number;
  /** A checksum of all elements: the sum of bits * ((i * 2654435761) mod 2^32 | 1) over all i, modulo 2^32. */
  readonly sum: number;
}

const path = new URL("../../../vectors/torch-h200-gemm.json", import.meta.url);
const { origin, cases } = JSON.parse(readFileSync(path, "utf8")) as {
  origin: { version: string };
  cases: Case[];
};

/** The first `count` outputs of xorshift32 from `seed`. */
function words(seed: number, count: number): Uint32Array {
  let state = seed;
  return Uint32Array.from({ length: count }, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  });
}

/** The operand that scripts/witness/h200_gemm.py makes from that seed. */
function operand(
  backend: Backend,
  format: ScalarFormat,
  seed: number,
  shape: readonly [number, number],
): Tensor {
  const drawn = words(seed, shape[0] * shape[1]);
  if (format === "e4m3" || format === "e5m2") {
    const firstSpecial = format === "e4m3" ? 0x7f : 0x7c;
    const codes = Uint8Array.from(drawn, (word) =>
      ((word >>> 24) & 0x7f) >= firstSpecial ? 0x38 : word >>> 24,
    );
    return tensor(backend, codes, shape, format);
  }
  const bf16 = format === "bf16";
  const codes = Uint16Array.from(drawn, (word) => {
    const exponent = ((word >>> 8) & 15) + (bf16 ? 119 : 7);
    const fraction = (word >>> 16) & (bf16 ? 0x7f : 0x3ff);
    return ((word >>> 31) << 15) | (exponent << (bf16 ? 7 : 10)) | fraction;
  });
  return tensor(backend, codes, shape, format);
}

function sumOf(bits: Uint32Array): number {
  return bits.reduce((sum, value, i) => (sum + Math.imul(value, Math.imul(i, 2654435761) | 1)) >>> 0, 0);
}

describe(`the hopper datapath, against ${origin.version} on an H200`, () => {
  let backend: Backend;
  beforeAll(async () => {
    backend = await openBackend("wasm");
  });
  afterAll(() => backend.dispose());

  it.each(cases)(
    "$x x $w, $m x $n x $k, split accumulator $splitAccumulator: the same bits",
    async (given) => {
      using _scope = new Scope();
      const b = operand(backend, given.x, given.seed, [given.m, given.k]);
      const a = operand(backend, given.w, given.seed + 1, [given.n, given.k]);
      const { out } = gemm({
        a,
        b,
        outDtype: "f32",
        datapath: "hopper",
        useSplitAccumulator: given.splitAccumulator,
      });
      const bits = new Uint32Array((await out.data()).buffer);
      const first = Array.from(bits.subarray(0, 512), (value) => value.toString(16).padStart(8, "0")).join(
        "",
      );
      expect(first).toBe(given.bits);
      expect(sumOf(bits)).toBe(given.sum);
    },
  );
});
