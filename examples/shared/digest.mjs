/** Digests of results, for comparing machines. */
import { createHash } from "node:crypto";

/** The first 16 hexadecimal digits of the SHA-256 of the concatenated bytes of all arrays. */
export function digestOf(arrays) {
  const hash = createHash("sha256");
  for (const { buffer, byteOffset, byteLength } of arrays)
    hash.update(new Uint8Array(buffer, byteOffset, byteLength));
  return hash.digest("hex").slice(0, 16);
}
