/**
 * The scalar formats, one row each. derive.ts derives everything else about a format (limits, format word, storage) from its
 * row.
 */

/**
 * Which codes of a format are infinities or NaN, and whether codes are two's complement (`integer`; `symmetric` does not use the
 * least one). See `Specials` in assembly/contract.ts.
 */
export type SpecialsName = "finite" | "nanOnly" | "ieee" | "fnuz" | "integer" | "symmetric";

/**
 * The layout of a scalar format. A code consists of sign s, exponent field e and mantissa m, from the highest bit down; its
 * value is (-1)^s * 2^(e - bias) * 1.m. An integer is a format whose exponent field of one bit is the highest bit of its
 * magnitude, because subnormals and the first binade have the same steps; a negative code is the two's complement of its
 * magnitude.
 */
export interface ScalarLayout {
  /** The number of bits of the exponent field, 1 to 8. */
  readonly exponentBits: number;
  /** The number of bits of the fraction after the implicit leading 1, at least 0. */
  readonly mantissaBits: number;
  /** The exponent bias: the exponent is the exponent field minus the bias. */
  readonly bias: number;
  /** Whether the highest bit is a sign bit. */
  readonly signed: boolean;
  /** Whether exponent field 0 encodes zero and subnormals. If false, it is an ordinary exponent and the format has no zero. */
  readonly subnormals: boolean;
  /** Which codes are infinities or NaN. */
  readonly specials: SpecialsName;
}

function row(
  exponentBits: number,
  mantissaBits: number,
  bias: number,
  specials: SpecialsName,
  signed = true,
  subnormals = true,
): ScalarLayout {
  return { exponentBits, mantissaBits, bias, signed, subnormals, specials };
}

/** Integers of `bits` bits in two's complement, times 2^-fraction. */
function integer(bits: number, fraction: number, specials: "integer" | "symmetric"): ScalarLayout {
  const mantissaBits = bits - 2;
  return row(1, mantissaBits, 1 - mantissaBits + fraction, specials);
}

/** Every scalar format by its OCP or IEEE name. */
export const SCALAR_FORMATS = {
  e4m3: row(4, 3, 7, "nanOnly"), // OCP OFP8
  e5m2: row(5, 2, 15, "ieee"), // OCP OFP8
  e2m1: row(2, 1, 1, "finite"), // OCP MX 1.0 FP4
  e2m3: row(2, 3, 1, "finite"), // OCP MX 1.0 FP6
  e3m2: row(3, 2, 3, "finite"), // OCP MX 1.0 FP6
  e8m0: row(8, 0, 127, "nanOnly", false, false), // OCP MX 1.0 scale
  e4m3fnuz: row(4, 3, 8, "fnuz"),
  e5m2fnuz: row(5, 2, 16, "fnuz"),
  e3m4: row(3, 4, 3, "ieee"),
  e4m3ieee: row(4, 3, 7, "ieee"), // ml_dtypes' float8_e4m3
  bf16: row(8, 7, 127, "ieee"),
  f16: row(5, 10, 15, "ieee"), // IEEE 754 binary16
  tf32: row(8, 10, 127, "ieee"), // stored in 32 bits, the code in the low 19
  int8: integer(8, 0, "integer"),
  s2f6: integer(8, 6, "symmetric"), // OCP MX 1.0 INT8: steps of 2^-6; the name is PTX's
  ue5m3: row(5, 3, 15, "nanOnly", false), // CUDA 13.5's __nv_fp8_ue5m3: scales of FP4
  int4: integer(4, 0, "integer"),
} as const satisfies Record<string, ScalarLayout>;

/** The name of a scalar format. */
export type ScalarFormat = keyof typeof SCALAR_FORMATS;

/** The names of these formats in other projects: torch, ml_dtypes, safetensors and OCP. The lookup ignores case. */
export const FORMAT_ALIASES: Readonly<Record<string, ScalarFormat>> = {
  float8_e4m3fn: "e4m3",
  f8_e4m3: "e4m3",
  e4m3fn: "e4m3",
  fp8e4m3: "e4m3",
  float8_e5m2: "e5m2",
  f8_e5m2: "e5m2",
  fp8e5m2: "e5m2",
  float4_e2m1fn: "e2m1",
  float4_e2m1fn_x2: "e2m1",
  f4: "e2m1",
  e2m1fn: "e2m1",
  fp4: "e2m1",
  float6_e2m3fn: "e2m3",
  f6_e2m3: "e2m3",
  e2m3fn: "e2m3",
  float6_e3m2fn: "e3m2",
  f6_e3m2: "e3m2",
  e3m2fn: "e3m2",
  float8_e8m0fnu: "e8m0",
  f8_e8m0: "e8m0",
  ue8m0: "e8m0",
  float8_e4m3fnuz: "e4m3fnuz",
  f8_e4m3fnuz: "e4m3fnuz",
  float8_e5m2fnuz: "e5m2fnuz",
  f8_e5m2fnuz: "e5m2fnuz",
  float8_e3m4: "e3m4",
  float8_e4m3: "e4m3ieee",
  bfloat16: "bf16",
  float16: "f16",
  half: "f16",
  fp16: "f16",
  tfloat32: "tf32",
  i8: "int8",
  mxint8: "s2f6",
  e5m3: "ue5m3",
  fp8_e5m3: "ue5m3",
  i4: "int4",
};
