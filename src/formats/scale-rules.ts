/**
 * The scale rules, one row each: how the amax of a block or of a tensor becomes the stored scale (numerics.md §2.3, §4.1, §5.1).
 * The rows of `BLOCK_FORMATS` list the rules of each quantizer. `ScaleRule` in assembly/contract.ts numbers the rules for the
 * backends, under the same names.
 */
import type { BlockScaleFormat } from "./datapath.js";
import { isIntegral } from "./derive.js";
import { decidesTies, type ElementScalingName } from "./element-scalings.js";
import { SCALAR_FORMATS, type ScalarFormat } from "./scalar.js";

/** One row of `SCALE_RULES`. */
export interface ScaleRule {
  /** The dtype of the stored scale. */
  readonly scale: BlockScaleFormat;
  /** The scale of a block with the given amax. `max` is the element format's largest value, `emax` its exponent. */
  readonly formula: string;
  /** Who defines it. */
  readonly source: string;
  /** Whether its scales are powers of two: always, if `pow2Scales` asks for it, or never. */
  readonly powers: "always" | "asked" | "never";
  /** The element scalings of the rule; `scalingsOf` returns those that a format has. The first is the default. */
  readonly scalings: readonly ElementScalingName[];
  /**
   * The number that is stored for the tensor, besides the block scales: its amax, a scale that multiplies block scales, or a
   * scale that divides them. Absent for rules that store nothing.
   */
  readonly tensor?: TensorScaleRole;
  /** Whether the scale of the tensor is 1 whatever its amax. */
  readonly unitTensor?: true;
  /** Whether a block of zeros has a scale of another code than 0. Absent for f32 scales. */
  readonly scalesZeros?: true;
}

/** The role of the number that a rule stores for the tensor. */
export type TensorScaleRole = "amax" | "multiplier" | "divisor";

const MULTIPLIED = ["multiply"] as const;
const QUOTIENT = { scale: "f32", scalings: ["multiply", "divide", "divideTyped", "divideTypedAdd"] } as const;
const E4M3 = { scale: "e4m3", powers: "never" } as const;
const FROM_LEAST = { scalesZeros: true } as const;
const E8M0 = {
  scale: "e8m0",
  powers: "always",
  scalings: [
    "multiply",
    "multiplyFromNormal",
    "multiplyUnlessLeast",
    "multiplyTypedAdd",
    "multiplyHalfDown",
    "multiplyHalfDownMinus",
    "multiplyHalfAway",
  ],
} as const;

/** Every scale rule by its name. */
export const SCALE_RULES = {
  f32: {
    scale: "f32",
    powers: "asked",
    scalings: MULTIPLIED,
    formula: "1 / m, where m = max / amax multiplies the elements",
    source: "TransformerEngine",
  },
  f32Quotient: {
    ...QUOTIENT,
    powers: "never",
    formula: "amax / max",
    source: "DeepGEMM, vLLM",
  },
  f32QuotientTyped: {
    ...QUOTIENT,
    powers: "never",
    formula: "amax / max, rounded to the type of the input",
    source: "torchao's and ModelOpt's FP8",
  },
  f32QuotientLeast: {
    ...QUOTIENT,
    powers: "never",
    formula: "amax / max, rounded to the type of the input; 0 becomes the epsilon of that type",
    source: "compressed-tensors' FP8",
  },
  f32QuotientRange: {
    ...QUOTIENT,
    powers: "never",
    formula:
      "amax / half of the range of an integer format, rounded to the type of the input; 0 becomes the epsilon of that type",
    source: "compressed-tensors' INT8",
  },
  f32Reciprocal: {
    scale: "f32",
    powers: "never",
    scalings: MULTIPLIED,
    formula: "1 / m, where m = (1 / amax) * max multiplies the elements",
    source: "transformers, FBGEMM",
  },
  f32QuotientUp: {
    ...QUOTIENT,
    powers: "always",
    formula: "amax / max, rounded up to a power of two",
    source: "DeepGEMM's UE8M0",
  },
  e8m0Up: {
    ...E8M0,
    formula: "the least power of two from amax * fl(1 / max)",
    source: "TransformerEngine's MXFP8",
  },
  e8m0Floor: {
    ...E8M0,
    formula: "2^(floor(log2 amax) - emax)",
    source: "OCP MX 1.0 §6.3",
  },
  e8m0Ceil: {
    ...E8M0,
    formula: "2^(ceil(log2 amax) - emax)",
    source: "torchao's CEIL",
  },
  e8m0Even: {
    ...E8M0,
    formula: "2^(floor(log2 r) - emax), where r is amax rounded to the mantissa bits of the element",
    source: "torchao's EVEN; AMD Quark",
  },
  e8m0EvenShort: {
    ...E8M0,
    formula:
      "2^(floor(log2 r) - emax), where r is amax rounded to one mantissa bit, to three for FP6; 1 where r is 2^128, and all elements are 0",
    source: "compressed-tensors' MX formats",
  },
  e8m0UpQuotient: {
    ...E8M0,
    formula: "the least power of two from amax / max",
    source: "DeepGEMM",
  },
  e8m0UpLog2: {
    ...E8M0,
    formula: "the power of two by the logarithm of amax / max in f32, rounded up",
    source: "torchao's RCEIL",
  },
  e8m0UpLeast: {
    ...E8M0,
    ...FROM_LEAST,
    formula: "the least power of two from amax / max, where amax is at least 10^-4",
    source: "DeepGEMM's MXFP4",
  },
  e8m0FloorLog2: {
    ...E8M0,
    scalings: [...E8M0.scalings, "multiplyBoundedHalfDown"],
    formula:
      "2^(floor(log2 amax) - emax) by the logarithm in f32; the code of a smaller one than 2^-127 wraps around, and all elements are 0",
    source: "gguf-py's MXFP4",
  },
  e8m0UpNormal: {
    ...E8M0,
    scalings: ["multiply", "multiplyHalfAway"],
    formula:
      "the least power of two from amax / max and from 2^-126; code 0 where the quotient is 0, and all elements are 0",
    source: "triton_kernels' MX formats",
  },
  ue5m3Quotient: {
    scale: "ue5m3",
    powers: "never",
    scalings: ["multiply", "divide", "dividePlusZero"],
    formula:
      "amax / 6, rounded to the type of the input, as ue5m3; elements of a block of the scale 0 are scaled as under 2^-23",
    source: "AMD Quark's AMDFP4",
  },
  e4m3Quotient: {
    ...E4M3,
    ...FROM_LEAST,
    scalings: MULTIPLIED,
    tensor: "multiplier",
    unitTensor: true,
    formula: "amax / 6, from 2^-6; the tensor's scale is 1",
    source: "torchao's NVFP4 without per_tensor_scale",
  },
  e4m3HalfUp: {
    ...E4M3,
    scalings: ["multiply", "divideHalfDown"],
    tensor: "multiplier",
    unitTensor: true,
    formula:
      "amax / 6, rounded half up; 448 from 248 on, at most 7 * 2^-9 below 2^-6; 0 makes all elements 0; the tensor's scale is 1",
    source: "ggml's NVFP4",
  },
  twoLevelQuotient: {
    ...E4M3,
    ...FROM_LEAST,
    scalings: MULTIPLIED,
    tensor: "multiplier",
    formula: "(amax / 6) / t, from 2^-6, where the tensor's t is its amax / 2688; m is (1 / t) / s",
    source: "torchao's NVFP4",
  },
  twoLevelProduct: {
    ...E4M3,
    ...FROM_LEAST,
    scalings: ["multiply", "divideAdd"],
    tensor: "multiplier",
    formula: "amax / (6 * t), from 2^-9, 1 where it is 0; the tensor's t is its amax / 2688",
    source: "ModelOpt's NVFP4",
  },
  twoLevelDivisor: {
    ...E4M3,
    ...FROM_LEAST,
    scalings: ["multiply", "divideAdd"],
    tensor: "divisor",
    formula:
      "d * (amax / 6), 0.125 where it is 0; the tensor's d is (1 / its amax) * 2688; quotients and d are rounded to the type of the input",
    source: "compressed-tensors' NVFP4",
  },
  twoLevel: {
    ...E4M3,
    scalings: MULTIPLIED,
    tensor: "amax",
    formula: "amax * (S_enc * fl(1 / 6)), under the tensor's factor S_enc",
    source: "TransformerEngine's NVFP4",
  },
} as const satisfies Record<string, ScaleRule>;

/** The name of a scale rule. */
export type ScaleRuleName = keyof typeof SCALE_RULES;

/**
 * How elements of a format are scaled under a rule, the default first. Integers have no minus zero, so they have no element
 * scaling that produces it.
 */
export function scalingsOf(name: ScaleRuleName, format: ScalarFormat): readonly ElementScalingName[] {
  const { scalings }: ScaleRule = SCALE_RULES[name];
  if (!isIntegral(SCALAR_FORMATS[format].specials)) return scalings;
  return scalings.filter((scaling) => !decidesTies(scaling));
}

/** Returns the role of the number that a rule stores for the tensor, or undefined if it stores none. */
export function tensorScaleRole(name: ScaleRuleName): TensorScaleRole | undefined {
  const rule: ScaleRule = SCALE_RULES[name];
  return rule.tensor;
}

/** Whether the scale of the tensor is 1 under a rule whatever its amax, so that libraries do not store it. */
export function hasUnitTensorScale(name: ScaleRuleName): boolean {
  const rule: ScaleRule = SCALE_RULES[name];
  return rule.unitTensor === true;
}

/**
 * Whether the factor of elements may be infinite or NaN, so that zeros get the code of NaN. It may be if a computed scale of the
 * tensor multiplies or divides block scales: an amax of 0 or a subnormal one makes that scale zero or its reciprocal infinite.
 */
export function mayEncodeZerosAsNaN(name: ScaleRuleName): boolean {
  const { tensor, unitTensor }: ScaleRule = SCALE_RULES[name];
  return (tensor === "multiplier" || tensor === "divisor") && unitTensor !== true;
}

/** Whether every scale of a quantizer with that rule is a power of two. */
export function hasPowersByRule(name: ScaleRuleName, pow2Scales: boolean): boolean {
  return pow2Scales || SCALE_RULES[name].powers === "always";
}

/** Whether blocks of zeros have scales of other codes than 0, which are the bytes of padding. */
export function scalesZeros(name: ScaleRuleName): boolean {
  const rule: ScaleRule = SCALE_RULES[name];
  return rule.scalesZeros === true;
}

/** The names of the scale rules, in table order. */
export const SCALE_RULE_NAMES = Object.keys(SCALE_RULES) as readonly ScaleRuleName[];
