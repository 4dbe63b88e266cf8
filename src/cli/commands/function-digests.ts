/** Digests of all results of a special function, in chunks of consecutive bit patterns. */
import type { Backend } from "../../backends/backend.js";
import { SPECIAL_FUNCTIONS, type SpecialFunctionName } from "../../formats/special-functions.js";
import { fromBytes } from "../../ops/create.js";
import { specialFunction } from "../../ops/elementwise/special-function.js";
import { Scope } from "../../tensor/scope.js";

/** The number of results of one call. It limits the memory of a chunk. */
const PART = 2 ** 20;

/** The number of chunks of an instruction, and the number of bit patterns of a chunk. */
export function chunksOf(name: SpecialFunctionName): { readonly chunks: number; readonly patterns: number } {
  return SPECIAL_FUNCTIONS[name].dtype === "f32"
    ? { chunks: 256, patterns: 2 ** 24 }
    : { chunks: 1, patterns: 2 ** 16 };
}

/**
 * Computes the results of the bit patterns of chunk `chunk` and returns their two digests, by the formula of `sweepChunk`, in
 * which the bits of a result are its code. `visit` is called with the bits of each part of the results, in order.
 */
export async function digestFunctionChunk(
  backend: Backend,
  name: SpecialFunctionName,
  chunk: number,
  visit: (results: Uint32Array | Uint16Array) => unknown = () => undefined,
): Promise<[first: number, second: number]> {
  const { patterns } = chunksOf(name);
  const sums: [number, number] = [0, 0];
  for (let part = 0; part < patterns; part += PART) {
    const begin = chunk * patterns + part;
    const results = await resultsOf(backend, name, begin, Math.min(PART, patterns));
    digest(results, begin, sums);
    await visit(results);
  }
  return sums;
}

/** The bits of the results of `count` bit patterns, starting at `begin`. */
async function resultsOf(
  backend: Backend,
  name: SpecialFunctionName,
  begin: number,
  count: number,
): Promise<Uint32Array | Uint16Array> {
  const { dtype } = SPECIAL_FUNCTIONS[name];
  const patterns = dtype === "f32" ? new Uint32Array(count) : new Uint16Array(count);
  for (let i = 0; i < count; i++) patterns[i] = begin + i;
  using scope = new Scope();
  const x = fromBytes(backend, new Uint8Array(patterns.buffer), [count], dtype);
  const out = scope.keep(specialFunction(x, { function: name }));
  const data = await out.data();
  out.dispose();
  return dtype === "f32"
    ? new Uint32Array(data.buffer, data.byteOffset, data.length)
    : new Uint16Array(data.buffer, data.byteOffset, data.length);
}

/** Adds results to the two digests of their chunk. */
function digest(results: Uint32Array | Uint16Array, begin: number, sums: [number, number]): void {
  let [first, second] = sums;
  for (let i = 0; i < results.length; i++) {
    const pattern = begin + i;
    const folded = pattern ^ (pattern >>> 16);
    const low = Math.imul(folded, 0x7feb352d);
    const high = Math.imul(folded, 0x846ca68b);
    const code = (results[i] as number) + 1;
    first = (first + Math.imul(code, (low ^ (low >>> 15)) | 1)) | 0;
    second = (second + Math.imul(code, (high ^ (high >>> 15)) | 1)) | 0;
  }
  sums[0] = first >>> 0;
  sums[1] = second >>> 0;
}
