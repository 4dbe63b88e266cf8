/**
 * How an element is brought to the range of its format before it is rounded, one row each (numerics.md §3.6). The rows of
 * `SCALE_RULES` list the element scalings of each scale rule.
 */
import { ELEMENT_SCALING } from "./contract.gen.js";

/** One of the bits of `ElementScaling` in assembly/contract.ts. */
export type ElementScalingBit = keyof typeof ELEMENT_SCALING;

/** One row of `ELEMENT_SCALINGS`. */
export interface ElementScaling {
  /**
   * The number that is rounded to a code. x is the element, s the stored scale (NVFP4: combined with the scale of the tensor), m
   * the multiplier by the scale rule.
   */
  readonly formula: string;
  /** The bits in which it differs from a multiplication by m. */
  readonly bits: readonly ElementScalingBit[];
}

/** Every element scaling by its name. */
export const ELEMENT_SCALINGS = {
  multiply: { formula: "x * m", bits: [] },
  multiplyFromNormal: { formula: "x / max(s, 2^-126)", bits: ["fromNormal"] },
  multiplyUnlessLeast: { formula: "x / s, but x where s is 2^-127", bits: ["unlessLeast"] },
  multiplyTypedAdd: {
    formula: "x * m, rounded to the type of x, plus zero",
    bits: ["typed", "addsZero"],
  },
  multiplyHalfDown: {
    formula: "x * m, where ties give the code nearer to zero, and what is rounded to zero is plus zero",
    bits: ["tiesToZero", "plusZero"],
  },
  multiplyHalfDownMinus: {
    formula: "x * m, where ties give the code nearer to zero, and plus zero becomes minus zero",
    bits: ["tiesToZero", "minusZero"],
  },
  multiplyHalfAway: {
    formula: "x * m, half away from zero",
    bits: ["tiesToAway"],
  },
  multiplyBoundedHalfDown: {
    formula:
      "x * m, where |x| is at most 1.5 * 2^127, ties give the code nearer to zero, and what is rounded to zero is plus zero",
    bits: ["bounded", "tiesToZero", "plusZero"],
  },
  divide: { formula: "x / s", bits: ["divides"] },
  divideAdd: { formula: "x / s, plus zero", bits: ["divides", "addsZero"] },
  dividePlusZero: {
    formula: "x / s, where what is rounded to zero is plus zero",
    bits: ["divides", "plusZero"],
  },
  divideHalfDown: {
    formula: "x / s, where ties give the code nearer to zero, and what is rounded to zero is plus zero",
    bits: ["divides", "tiesToZero", "plusZero"],
  },
  divideTyped: { formula: "x / s, rounded to the type of x", bits: ["divides", "typed"] },
  divideTypedAdd: {
    formula: "x / s, rounded to the type of x, plus zero",
    bits: ["divides", "typed", "addsZero"],
  },
} as const satisfies Record<string, ElementScaling>;

/** The name of a row of `ELEMENT_SCALINGS`. */
export type ElementScalingName = keyof typeof ELEMENT_SCALINGS;

/** The names of the rows, in table order. */
export const ELEMENT_SCALING_NAMES = Object.keys(ELEMENT_SCALINGS) as readonly ElementScalingName[];

/** The result of a tie between two codes: the even code, the code nearer to zero, or the code farther from zero. */
export type Ties = "tiesToEven" | "tiesToZero" | "tiesToAway";

/** Returns how an element scaling rounds ties. */
export function tiesOf(name: ElementScalingName): Ties {
  const { bits }: ElementScaling = ELEMENT_SCALINGS[name];
  return (["tiesToZero", "tiesToAway"] as const).find((bit) => bits.includes(bit)) ?? "tiesToEven";
}

/** Whether an element scaling has its own rule for ties, so that elements cannot be rounded otherwise. */
export function decidesTies(name: ElementScalingName): boolean {
  return tiesOf(name) !== "tiesToEven";
}

/** Returns the sum of the bits of an element scaling, as the reference takes it. */
export function scalingBits(name: ElementScalingName): number {
  const { bits }: ElementScaling = ELEMENT_SCALINGS[name];
  return bits.reduce((sum, bit) => sum + ELEMENT_SCALING[bit], 0);
}

/** Whether an element scaling turns plus zero into minus zero, so that a row of zeros has codes of minus zero. */
export function hasMinusZeros(name: ElementScalingName): boolean {
  const { bits }: ElementScaling = ELEMENT_SCALINGS[name];
  return bits.includes("minusZero");
}
