/** Plain loops over elements, and conversions of values to types. */
import type { Changes } from "../../../../src/checkpoints/convert/changes/changes.js";
import { float } from "./weights.js";

/** The part of `Changes` that does not depend on the order of elements. */
interface ChangeCounts {
  elements: number;
  changed: number;
  max: number;
  relative: number;
  notFinite: number;
}

/** The changes, counted element by element. `isEqual` returns whether two values are equal. */
export function countChanges(
  pairs: Iterable<readonly [before: number, after: number]>,
  isEqual: (original: number, converted: number) => boolean,
): ChangeCounts {
  const counts = { elements: 0, changed: 0, max: 0, relative: 0, notFinite: 0 };
  for (const [original, converted] of pairs) {
    counts.elements++;
    if (isEqual(original, converted)) continue;
    counts.changed++;
    const difference = Math.abs(original - converted);
    if (difference > counts.max) counts.max = difference;
    const quotient = difference / Math.abs(original);
    if (quotient > counts.relative) counts.relative = quotient;
    if (Number.isFinite(original) && !Number.isFinite(converted)) counts.notFinite++;
  }
  return counts;
}

/** The changes in the form in which `countChanges` returns them. */
export const toCounts = ({ elements, changed, max, relative, notFinite }: Changes): ChangeCounts => ({
  elements,
  changed,
  max,
  relative,
  notFinite,
});

/** Whether the error of changes equals the error of pairs whose differences are finite; differences may be rounded to f32. */
export function hasErrorOf(
  { noise, signal, sqnr }: Changes,
  pairs: readonly (readonly [before: number, after: number])[],
): boolean {
  const finitePairs = pairs.filter(([original, converted]) => Number.isFinite(original - converted));
  const sum = (term: (original: number, converted: number) => number): number =>
    finitePairs.reduce((total, [original, converted]) => total + term(original, converted) ** 2, 0);
  const [noiseEnergy, signalEnergy] = [
    sum((original, converted) => original - converted),
    sum((original) => original),
  ];
  if (!(noiseEnergy < 1e300 && signalEnergy < 1e300)) return true;
  // squares below the least normal number are 0
  const isNear = Math.abs(noise - noiseEnergy) <= 1e-5 * noiseEnergy + 2 ** -44 * signalEnergy + 1e-300;
  if (!isNear || noiseEnergy < 1e-290 || noise === 0) return isNear;
  if (signal === 0) return signalEnergy < 1e-290 && sqnr === -Infinity;
  const isSignalNear = Math.abs(signal - signalEnergy) <= 1e-9 * signalEnergy + 1e-300;
  const ratio = 10 * Math.log10(signal / noise);
  return isSignalNear && Math.abs(sqnr - ratio) <= 1e-9 * Math.abs(ratio) + 1e-9;
}

/** An f32 rounded to bf16 as a number, and its bits. */
export function bf16(value: number): { readonly bits: number; readonly value: number } {
  const f32 = Math.fround(value);
  if (Number.isNaN(f32)) return { bits: 0x7fc0, value: Number.NaN };
  const word = new Uint32Array(Float32Array.of(f32).buffer)[0] as number;
  const low = word % 65536;
  const high = (word - low) / 65536;
  const roundsUp = low > 32768 || (low === 32768 && high % 2 === 1);
  const bits = roundsUp ? high + 1 : high;
  return { bits, value: float(bits * 65536) };
}

/** Values in a type: their bytes, and the values after rounding to the type. */
export function encodeAs(dtype: "f32" | "bf16" | "f16" | "f64", values: readonly number[]) {
  if (dtype === "f64") return { bytes: Float64Array.from(values), values };
  if (dtype === "f32") return { bytes: Float32Array.from(values), values: values.map(Math.fround) };
  if (dtype === "bf16") {
    const encoded = values.map(bf16);
    return {
      bytes: Uint16Array.from(encoded, ({ bits }) => bits),
      values: encoded.map(({ value }) => value),
    };
  }
  const encoded = values.map((value) => {
    const [sign, magnitude] = [Object.is(Math.sign(value), -0) || value < 0 ? 0x8000 : 0, Math.abs(value)];
    if (Number.isNaN(value)) return { bits: 0x7e00, value };
    if (magnitude >= 65520) return { bits: sign | 0x7c00, value: sign ? -Infinity : Infinity };
    const exponent = Math.max(-14, Math.floor(Math.log2(magnitude || 2 ** -30)));
    const fraction = Math.trunc(magnitude / 2 ** (exponent - 10));
    const field = fraction < 1024 ? fraction : fraction - 1024 + (exponent + 15) * 1024;
    return { bits: sign | field, value: (sign ? -1 : 1) * fraction * 2 ** (exponent - 10) };
  });
  return { bytes: Uint16Array.from(encoded, ({ bits }) => bits), values: encoded.map(({ value }) => value) };
}
