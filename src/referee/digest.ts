/** Digests of the bytes of tensors, as `lockstep.torch.record` computes them on the device (python/lockstep/_digest.py). */
import type { TensorReference } from "./run.js";

const hex = (word: number): string => (word >>> 0).toString(16).padStart(8, "0");

/**
 * The digest of bytes. The bytes are padded with zeros to words w of 32 bits. In arithmetic modulo 2^32, t = w + i * 9E3779B1 for
 * word i, then t ^= t >> 16, t *= 7FEB352D, t ^= t >> 15. The digest is the sum of all t, followed by the sum of all t * (2 i +
 * 1), in hexadecimal.
 */
export function computeDigest(bytes: Uint8Array): string {
  const count = Math.ceil(bytes.length / 4);
  const paddedBytes = new Uint8Array(4 * count);
  paddedBytes.set(bytes);
  const view = new DataView(paddedBytes.buffer);
  let [wordSum, weightedSum] = [0, 0];
  for (let i = 0; i < count; i++) {
    let t = (view.getUint32(4 * i, true) + Math.imul(i, 0x9e3779b1)) | 0;
    t ^= t >>> 16;
    t = Math.imul(t, 0x7feb352d);
    t ^= t >>> 15;
    wordSum = (wordSum + t) | 0;
    weightedSum = (weightedSum + Math.imul(t, 2 * i + 1)) | 0;
  }
  return hex(wordSum) + hex(weightedSum);
}

/** Whether two outputs have equal digests. Undefined if they have no digest of the same kind. A view has no digest. */
export function haveEqualDigests(a: TensorReference, b: TensorReference): boolean | undefined {
  if (a.digest !== undefined && b.digest !== undefined) return a.digest === b.digest;
  if (a.sha256 !== undefined && b.sha256 !== undefined) return a.sha256 === b.sha256;
  return undefined;
}
