/**
 * Makes `toEqual` fast for arrays of numbers, because vitest needs about a microsecond for each element. Equal arrays of numbers
 * pass at once; vitest compares all other values and reports their difference.
 */
import { expect } from "vitest";

type TypedArray = Exclude<ArrayBufferView, DataView> & { readonly length: number };

const isTyped = (value: unknown): value is TypedArray =>
  ArrayBuffer.isView(value) && !(value instanceof DataView);

const asBuffer = ({ buffer, byteOffset, byteLength }: TypedArray): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

/** Whether two arrays have the same numbers. NaN equals NaN, and zeros of different signs differ, as in `toEqual`. */
function areEqualNumbers(a: readonly unknown[], b: readonly unknown[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (typeof a[i] !== "number" || !Object.is(a[i], b[i])) return false;
  return true;
}

/** True for equal arrays of numbers; undefined leaves the comparison to vitest. */
export function equalNumbers(a: unknown, b: unknown): true | undefined {
  if (Array.isArray(a) && Array.isArray(b)) return a.length > 0 && areEqualNumbers(a, b) ? true : undefined;
  if (!isTyped(a) || !isTyped(b) || a.constructor !== b.constructor || a.length !== b.length)
    return undefined;
  return asBuffer(a).equals(asBuffer(b)) ? true : undefined;
}

/** Global, because vitest evaluates this setup file again for each test file of a worker. */
const state = globalThis as typeof globalThis & { lockstepEquality?: true };
if (!state.lockstepEquality) expect.addEqualityTesters([equalNumbers]);
state.lockstepEquality = true;
