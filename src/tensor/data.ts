/** The elements of a tensor as typed arrays on the host: which typed array belongs to which dtype. */
import { ArgumentError, DTypeError } from "../errors.js";
import { describe } from "../options.js";
import { type DType, storageBits } from "./shape.js";

/** The typed array that `data()` returns: values for f32 and i32, codes for all other dtypes. FP4 has two codes per byte. */
export type TensorData<D extends DType = DType> = D extends "f32"
  ? Float32Array
  : D extends "i32"
    ? Int32Array
    : D extends "bf16" | "f16" | "u16"
      ? Uint16Array
      : D extends "tf32" | "u32"
        ? Uint32Array
        : Uint8Array;

const ARRAYS = { Float32Array, Int32Array, Uint32Array, Uint16Array, Uint8Array } as const;

/** Returns the name of the typed array for that dtype. Throws `DTypeError` for an unknown dtype. */
export function arrayOf(dtype: DType): keyof typeof ARRAYS {
  const bits = storageBits(dtype);
  if (dtype === "f32") return "Float32Array";
  if (dtype === "i32") return "Int32Array";
  if (bits === 32) return "Uint32Array";
  return bits === 16 ? "Uint16Array" : "Uint8Array";
}

/** Views bytes as elements of that dtype, without copying. */
export function viewAs<D extends DType>(dtype: D, bytes: Uint8Array): TensorData<D> {
  const { buffer, byteOffset, byteLength } = bytes as Uint8Array<ArrayBuffer>;
  const array = ARRAYS[arrayOf(dtype)];
  return new array(buffer, byteOffset, byteLength / array.BYTES_PER_ELEMENT) as TensorData<D>;
}

/** Returns the bytes, copied if their offset is not a multiple of `unit`. */
export function alignBytes(bytes: Uint8Array, unit: number): Uint8Array {
  return bytes.byteOffset % unit === 0 ? bytes : bytes.slice();
}

const TypedArray = Object.getPrototypeOf(Uint8Array.prototype) as object;

/** The language's own getter of typed arrays, which a subclass or a property of an array cannot override. */
function getterOf<T>(name: PropertyKey): (this: unknown) => T {
  return Object.getOwnPropertyDescriptor(TypedArray, name)?.get as (this: unknown) => T;
}
const tagOf = getterOf<string | undefined>(Symbol.toStringTag);
const bufferOf = getterOf<ArrayBufferLike>("buffer");
const offsetOf = getterOf<number>("byteOffset");
const bytesIn = getterOf<number>("byteLength");

/** Views elements as their bytes, without copying. */
export function asBytes(elements: ArrayBufferView): Uint8Array {
  return new Uint8Array(bufferOf.call(elements), offsetOf.call(elements), bytesIn.call(elements));
}

/** Returns the class name of a typed array, also of one from another JavaScript realm, or undefined for anything else. */
export function kindOf(data: unknown): string | undefined {
  return tagOf.call(data);
}

/**
 * Views the elements of a caller's typed array of that kind as a plain one, which no subclass or property of it overrides. Throws
 * `ArgumentError` if its memory was transferred.
 */
export function asPlain<A extends TensorData>(op: string, kind: keyof typeof ARRAYS, elements: A): A {
  const { buffer, byteOffset, byteLength } = present(op, elements);
  const array = ARRAYS[kind];
  return new array(buffer as ArrayBuffer, byteOffset, byteLength / array.BYTES_PER_ELEMENT) as A;
}

/** As `asBytes`. Throws `ArgumentError` if the memory of the array was transferred. */
function present(op: string, elements: ArrayBufferView): Uint8Array {
  try {
    return asBytes(elements);
  } catch (cause) {
    throw new ArgumentError(
      `${op}: the memory of the data was transferred; copy them before you transfer it`,
      { cause },
    );
  }
}

/**
 * Returns the bytes of `data`, which holds elements of that dtype or is a Uint8Array of their bytes. Throws `DTypeError` for
 * another kind of array, `ArgumentError` for an array whose memory was transferred.
 */
export function bytesOf(op: string, dtype: DType, data: unknown): Uint8Array {
  const [kind, expected] = [kindOf(data), arrayOf(dtype)];
  if (kind !== expected && kind !== "Uint8Array") {
    throw new DTypeError(
      `${op}: ${dtype} elements are a ${expected}, as data() gives them, or their bytes a Uint8Array; ${kind ? `a ${kind}` : describe(data)} was given`,
    );
  }
  return present(op, data as Uint8Array);
}
