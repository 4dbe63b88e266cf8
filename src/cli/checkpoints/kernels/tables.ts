/** The values of codes, as the kernels read them. */
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";

const SINGLE = new Map<CodeTypeName, Float32Array>();
const PAIRS = new Map<CodeTypeName, Float32Array>();

/** The f32 value of each byte that has one code, which is exact. */
export function singleTable(type: CodeTypeName): Float32Array {
  const known = SINGLE.get(type);
  if (known) return known;
  const { values } = CODE_TYPES[type];
  const made = Float32Array.from({ length: 256 }, (_, code) => values[code] ?? 0);
  SINGLE.set(type, made);
  return made;
}

/** The f32 values of the two codes of each byte, the low half first. */
export function pairTable(type: CodeTypeName): Float32Array {
  const known = PAIRS.get(type);
  if (known) return known;
  const { values } = CODE_TYPES[type];
  const made = Float32Array.from({ length: 512 }, (_, i) => {
    const byte = i >>> 1;
    return values[i & 1 ? byte >>> 4 : byte & 15] ?? 0;
  });
  PAIRS.set(type, made);
  return made;
}
