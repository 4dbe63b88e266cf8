/** What a frozen case is, the values it is made of, and the hashes that are kept of its answer. */
import { createHash } from "node:crypto";
import type { Backend } from "../../../../src/backends/backend.js";
import { elementCount, type Shape, type WideDType } from "../../../../src/tensor/shape.js";
import { words } from "../../../arbitraries/random.js";
import type { Answer } from "../../../operations/operation.js";
import { type Cases, OPERATIONS, type OperationName } from "../../../operations/operations.js";
import { codeValue, fromCodes, nanIsClass, PlainTensor } from "../../../values/plain.js";
import { wideValuesOf } from "../products.js";

/** Hashes of an answer's parts, by name. */
export type Hashes = Readonly<Record<string, string>>;

/** One operation on inputs made from a seed. */
export interface FrozenCase {
  readonly operation: OperationName;
  readonly name: string;
  readonly run: (backend: Backend) => Answer;
}

/** SHA-256 of each part's codes, little-endian, every NaN of a wide type as one. */
export function hashesOf(answer: Answer): Hashes {
  return Object.fromEntries(
    Object.entries(answer).map(([name, part]) => [
      name,
      createHash("sha256").update(canonical(part)).digest("hex"),
    ]),
  );
}

function canonical(part: PlainTensor): Uint8Array {
  const { codes, dtype } = part;
  const nan = nanIsClass(dtype);
  const made = nan ? codes.map((code) => (Number.isNaN(codeValue(dtype, code)) ? 0xffffffff : code)) : codes;
  return new Uint8Array(made.buffer, made.byteOffset, made.byteLength);
}

/** Any f32, bf16 or f16: a fifth of them specials and of every size. */
export function values(dtype: WideDType, shape: readonly number[], seed: number): PlainTensor<WideDType> {
  const near = wideValuesOf(dtype, shape, seed);
  const wild = words(seed + 1, near.codes.length);
  return fromCodes(
    dtype,
    shape,
    Array.from(near.codes, (code, i) => {
      const word = wild[i] as number;
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

/** An integer below `bound` for each element of that shape. */
export function indices(shape: Shape, bound: number, seed: number): PlainTensor<"i32"> {
  const drawn = Int32Array.from(words(seed, elementCount(shape)), (word) => word % bound);
  return new PlainTensor("i32", shape, drawn);
}
