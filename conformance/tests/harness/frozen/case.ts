/** Frozen cases: fixed calls whose results are recorded as hashes. Their type, generators of inputs, and the hashes. */
import { createHash } from "node:crypto";
import * as fc from "fast-check";
import type { Backend } from "../../../../src/backends/backend.js";
import { elementCount, type Shape, type WideDType } from "../../../../src/tensor/shape.js";
import { words } from "../../../arbitraries/random.js";
import type { Answer } from "../../../operations/operation.js";
import { type Cases, OPERATIONS, type OperationName } from "../../../operations/operations.js";
import { codeValue, fromCodes, nanIsClass, PlainTensor } from "../../../values/plain.js";
import { gridWideValues } from "../gemm/products.js";

/** Hashes of the tensors of an answer, by name. */
export type Hashes = Readonly<Record<string, string>>;

/** One call of an operation with inputs derived from a seed. */
export interface FrozenCase {
  readonly operation: OperationName;
  readonly name: string;
  readonly run: (backend: Backend) => Answer;
}

/** SHA-256 of the codes of each tensor, little-endian; in wide types all NaNs are the same. */
export function hashAnswer(answer: Answer): Hashes {
  return Object.fromEntries(
    Object.entries(answer).map(([name, tensor]) => [
      name,
      createHash("sha256").update(canonicalBytes(tensor)).digest("hex"),
    ]),
  );
}

function canonicalBytes(tensor: PlainTensor): Uint8Array {
  const { codes, dtype } = tensor;
  const hasNaNClass = nanIsClass(dtype);
  const canonicalCodes = hasNaNClass
    ? codes.map((code) => (Number.isNaN(codeValue(dtype, code)) ? 0xffffffff : code))
    : codes;
  return new Uint8Array(canonicalCodes.buffer, canonicalCodes.byteOffset, canonicalCodes.byteLength);
}

/** Values of a wide type; a fifth of them are specials or have any magnitude. */
export function values(dtype: WideDType, shape: readonly number[], seed: number): PlainTensor<WideDType> {
  const ordinary = gridWideValues(dtype, shape, seed);
  const randomBits = words(seed + 1, ordinary.codes.length);
  return fromCodes(
    dtype,
    shape,
    Array.from(ordinary.codes, (code, i) => {
      const word = randomBits[i] as number;
      return word % 5 === 0 ? (dtype === "f32" ? word : word >>> 16) : code;
    }),
  );
}

export function frozenCase<K extends OperationName>(
  operation: K,
  label: string,
  input: Cases[K],
): FrozenCase {
  return {
    operation,
    name: `${operation} ${label}`,
    run: (backend) => OPERATIONS[operation].run(backend, input),
  };
}

/**
 * Cases that an operation's arbitrary draws from a fixed seed. A name contains a hash of the inputs, so that changed inputs have
 * a new name.
 */
export function drawnCases<K extends OperationName>(operation: K): readonly FrozenCase[] {
  const { arbitrary } = OPERATIONS[operation];
  return fc.sample(arbitrary, { numRuns: 12, seed: 1 }).map((input: Cases[K]) => {
    const hash = createHash("sha256").update(fc.stringify(input)).digest("hex");
    return frozenCase(operation, `of ${hash.slice(0, 12)}`, input);
  });
}

/** A tensor of random integers from 0 to below `limit`. */
export function indices(shape: Shape, limit: number, seed: number): PlainTensor<"i32"> {
  const numbers = Int32Array.from(words(seed, elementCount(shape)), (word) => word % limit);
  return new PlainTensor("i32", shape, numbers);
}
