/** The states of optimizers in low precision: codes, and for some types one scale (numerics.md §9.6). */
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { bitsOf, div, fromBits, mul } from "../core/rational.js";
import { decode, encode } from "../core/scalar.js";
import { amaxOf } from "../core/scale.js";

export type StateType = "f32" | "bf16" | "f16" | "e4m3" | "u16";

/** A stored state: the value of each code, and the factor of all of them. */
export interface StoredState {
  readonly codes: readonly number[];
  /** Undefined for types without a scale. */
  readonly scale: number | undefined;
}

/** The magnitude of the largest scaled element. */
const MAXIMA: { readonly [T in StateType]?: number } = { f16: 32752, e4m3: 448 };
const LEAST_SCALE = 2 ** -126;

/** The f32 master whose upper 16 bits are those of a bf16 parameter, before that was rounded up. */
export function joined(parameter: number, remainder: number): number {
  const upper = (bitsOf(parameter) >>> 16) - (remainder >= 2 ** 15 ? 1 : 0);
  return fromBits(((upper << 16) | remainder) >>> 0);
}

/** The bf16 parameter and the remainder of an f32 master. */
export function divided(master: number): { readonly parameter: number; readonly remainder: number } {
  if (Number.isNaN(master)) return { parameter: master, remainder: 0 };
  const bits = bitsOf(master);
  const remainder = bits % 2 ** 16;
  const upper = (bits >>> 16) + (remainder >= 2 ** 15 ? 1 : 0);
  return { parameter: fromBits((upper << 16) >>> 0), remainder };
}

/** The state before the first step. */
export function zeroState(type: StateType, size: number): StoredState {
  return { codes: Array.from({ length: size }, () => 0), scale: MAXIMA[type] === undefined ? undefined : 1 };
}

/** The values with which a step computes. */
export function valuesOf({ codes, scale }: StoredState): readonly number[] {
  return scale === undefined ? codes : codes.map((code) => mul(code, scale));
}

/** The state that stores `values`. */
export function stored(values: readonly number[], type: StateType): StoredState {
  if (type === "f32") return { codes: values, scale: undefined };
  if (type === "u16") return { codes: values.map((x) => divided(x).remainder), scale: undefined };
  const max = MAXIMA[type];
  if (max === undefined) return { codes: values.map((x) => rounded(x, type)), scale: undefined };
  const scale = div(Math.max(amaxOf(values), max * LEAST_SCALE), max);
  const factor = div(1, scale);
  return { codes: values.map((x) => rounded(mul(x, factor), type)), scale };
}

function rounded(x: number, type: ScalarFormat): number {
  const layout = SCALAR_FORMATS[type];
  return decode(encode(bitsOf(x), layout, "tiesToEven", "nonfinite"), layout);
}
