/** Steps of a computation as plain data, and the rounded operations that they use. */
import { factsOf, valueOfCode } from "../formats/derive.js";
import type { WideDType } from "../tensor/shape.js";
import { floorLog2 } from "./binary.js";

/** One step: a name, how it follows from the input and from earlier steps, and its value. */
export interface ExplainedStep {
  /** The name of the result; a later step may give it a new value. */
  readonly name: string;
  /** ⊗ ⊘ ⊕ ⊖ are f32 operations with one rounding each; fl rounds to f32. */
  readonly formula: string;
  /** The result. */
  readonly value: number;
}

/** Records steps in their order. */
export class Steps {
  readonly list: ExplainedStep[] = [];

  /** Adds a step and returns its value. */
  add(name: string, formula: string, value: number): number {
    this.list.push({ name, formula, value });
    return value;
  }
}

/** x ⊗ y, of f32 numbers. */
export function mul(x: number, y: number): number {
  return Math.fround(x * y);
}

/** x ⊘ y, of f32 numbers. */
export function div(x: number, y: number): number {
  return Math.fround(x / y);
}

/** x ⊕ y, of f32 numbers. */
export function add(x: number, y: number): number {
  return Math.fround(x + y);
}

/** Rounds a number to an input type, once: to nearest, ties to even, with overflow to infinity. */
export function roundedTo(value: number, dtype: WideDType): number {
  if (dtype === "f32") return Math.fround(value);
  if (!Number.isFinite(value) || value === 0) return value;
  const { max, minNormal } = factsOf(dtype);
  const exponent = floorLog2(Math.max(Math.abs(value), minNormal));
  const unit = 2 ** (exponent - FRACTION_BITS[dtype]);
  // the sum has no fraction bits, so that the addition rounds to nearest, ties to even
  const rounded = (Math.abs(value) / unit + INTEGERS - INTEGERS) * unit;
  const magnitude = rounded > max ? Number.POSITIVE_INFINITY : rounded;
  return value < 0 ? -magnitude : magnitude;
}

/** From here on to twice its value, f64 numbers are the integers. */
const INTEGERS = 2 ** 52;

/** The numbers of fraction bits after the leading 1. */
const FRACTION_BITS = { bf16: fractionBits("bf16"), f16: fractionBits("f16") } as const;

function fractionBits(dtype: "bf16" | "f16"): number {
  const { max, maxExponent } = factsOf(dtype);
  // the largest number is (2 - 2^-bits) * 2^maxExponent
  return -Math.log2(2 - max / 2 ** maxExponent);
}

/** The value of one entry of a tensor's data: f32 entries are values, bf16 and f16 entries are codes. */
export function wideValue(dtype: WideDType, element: number): number {
  return dtype === "f32" ? element : valueOfCode(dtype, element);
}

/** The distance from 1 to the next number of an input type. */
export function epsilonOf(dtype: WideDType): number {
  if (dtype === "f32") return 2 ** -23;
  return 2 ** -FRACTION_BITS[dtype];
}
