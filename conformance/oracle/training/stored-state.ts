/** The states of optimizers in low precision: codes, and for some types one scale (numerics.md §9.6). */
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { bitsOf, div, mul } from "../core/rational.js";
import { decode, encode } from "../core/scalar.js";
import { amaxOf } from "../core/scale.js";

export type StateType = "f32" | "bf16" | "f16" | "e4m3";

/** A stored state: the value of each code, and the factor of all of them. */
export interface StoredState {
  readonly codes: readonly number[];
  /** Undefined for types without a scale. */
  readonly scale: number | undefined;
}

/** The magnitude of the largest scaled element. */
const MAXIMA: { readonly [T in StateType]?: number } = { f16: 32752, e4m3: 448 };
const LEAST_SCALE = 2 ** -126;

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
