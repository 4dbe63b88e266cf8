/** Products that PyTorch computed on an H200 (torch-h200-gemm.json), and the operands that their seeds stand for. */
import { readFileSync } from "node:fs";
import { type Backend, type ScalarFormat, type Tensor, tensor } from "../../../../src/index.js";
import type { RecordedGemm } from "./recorded-gemm.js";

/** A recorded product; the file has the first 512 elements of its result. */
export interface TorchGemm extends RecordedGemm {
  readonly seed: number;
  /** A checksum of all elements: the sum of bits * ((i * 2654435761) mod 2^32 | 1) over all i, modulo 2^32. */
  readonly sum: number;
}

const path = new URL("../../../vectors/torch-h200-gemm.json", import.meta.url);
/** Who computed the products, and the products. */
export const { origin, cases } = JSON.parse(readFileSync(path, "utf8")) as {
  origin: { version: string };
  cases: TorchGemm[];
};

/** The first `count` outputs of xorshift32 from `seed`. */
function xorshift32(seed: number, count: number): Uint32Array {
  let state = seed;
  return Uint32Array.from({ length: count }, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  });
}

/** The operand that scripts/witness/h200_gemm.py makes from that seed. */
export function operand(
  backend: Backend,
  format: ScalarFormat,
  seed: number,
  shape: readonly [number, number],
): Tensor {
  const randomBits = xorshift32(seed, shape[0] * shape[1]);
  if (format === "e4m3" || format === "e5m2") {
    const firstSpecial = format === "e4m3" ? 0x7f : 0x7c;
    const codes = Uint8Array.from(randomBits, (word) =>
      ((word >>> 24) & 0x7f) >= firstSpecial ? 0x38 : word >>> 24,
    );
    return tensor(backend, codes, shape, format);
  }
  const bf16 = format === "bf16";
  const codes = Uint16Array.from(randomBits, (word) => {
    const exponent = ((word >>> 8) & 15) + (bf16 ? 119 : 7);
    const fraction = (word >>> 16) & (bf16 ? 0x7f : 0x3ff);
    return ((word >>> 31) << 15) | (exponent << (bf16 ? 7 : 10)) | fraction;
  });
  return tensor(backend, codes, shape, format);
}

/** The checksum of all elements of a result. */
export function checksum(bits: Uint32Array): number {
  return bits.reduce((sum, value, i) => (sum + Math.imul(value, Math.imul(i, 2654435761) | 1)) >>> 0, 0);
}
