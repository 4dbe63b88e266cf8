/** Compares two quantizations of one matrix: their errors and their differences. */
import { factsOf } from "lockstep";
import type { Quantization } from "./quantization.js";

/** The costs of a quantization. Inputs that are not finite are ignored. */
export interface Cost {
  /** The bits of codes and scales per value. */
  readonly bitsPerValue: number;
  /** |quantized - input| / |input|, in Frobenius norms. */
  readonly error: number;
  readonly largestError: number;
  /** The number of elements with the largest magnitude of the format. */
  readonly largest: number;
  /** The number of elements that became zero. */
  readonly vanished: number;
  /** The number of the format's codes that occur. */
  readonly codesUsed: number;
  readonly scaleRange: readonly [low: number, high: number];
}

/** Measures a quantization. */
export function costOf(quantization: Quantization): Cost {
  const { inputs, values, format, scales, codes, elements } = quantization;
  const { bits, max } = factsOf(format);
  let [squares, errors, largestError, largest, vanished] = [0, 0, 0, 0, 0];
  for (const [at, input] of inputs.entries()) {
    if (!Number.isFinite(input)) continue;
    const error = Math.abs((values[at] as number) - input);
    squares += input * input;
    errors += error * error;
    largestError = Math.max(largestError, error);
    if (input !== 0 && values[at] === 0) vanished++;
    if (Math.abs(elements[at] as number) === max) largest++;
  }
  const scaleBits = (scales.format === "f32" ? 32 : factsOf(scales.format).bits) * scales.values.length;
  return {
    bitsPerValue: bits + scaleBits / inputs.length,
    error: squares > 0 ? Math.sqrt(errors / squares) : 0,
    largestError,
    largest,
    vanished,
    codesUsed: new Set(codes).size,
    scaleRange: [
      scales.values.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY),
      scales.values.reduce((a, b) => Math.max(a, b), 0),
    ],
  };
}

/**
 * The difference between two quantizations of an element: in value, only in the code, or none. Codes of different formats are not
 * compared.
 */
export type Difference = "none" | "code" | "value";

export function differenceAt(a: Quantization, b: Quantization, at: number): Difference {
  if (!Object.is(a.values[at], b.values[at])) return "value";
  return a.format === b.format && a.codes[at] !== b.codes[at] ? "code" : "none";
}

/** Two quantizations of one matrix, and the elements with different values, in ascending order. */
export interface Pair {
  readonly a: Quantization;
  readonly b: Quantization;
  readonly different: readonly number[];
  /** The number of elements with different codes for the same value. */
  readonly recoded: number;
}

/** Finds where two quantizations of one matrix differ. */
export function compare(a: Quantization, b: Quantization): Pair {
  const all = Array.from(a.inputs.keys(), (at) => differenceAt(a, b, at));
  const different = [...all.keys()].filter((at) => all[at] === "value");
  return { a, b, different, recoded: all.filter((difference) => difference === "code").length };
}
