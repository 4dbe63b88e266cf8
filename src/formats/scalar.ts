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

/** A row of the table. Formats are signed and have subnormals unless they say otherwise. */
type Row = Omit<ScalarLayout, "signed" | "subnormals"> & Partial<Pick<ScalarLayout, "signed" | "subnormals">>;

function floating(row: Row): ScalarLayout {
  const { exponentBits, mantissaBits, bias, signed = true, subnormals = true, specials } = row;
  return { exponentBits, mantissaBits, bias, signed, subnormals, specials };
}

/** An integer of `bits` bits, sign included, times 2^-fractionBits. */
interface IntegerRow {
  readonly bits: number;
  readonly fractionBits: number;
  readonly specials: "integer" | "symmetric";
}

function integer({ bits, fractionBits, specials }: IntegerRow): ScalarLayout {
  const mantissaBits = bits - 2;
  return floating({ exponentBits: 1, mantissaBits, bias: 1 - mantissaBits + fractionBits, specials });
}

/** Every scalar format by its OCP or IEEE name. */
export const SCALAR_FORMATS = {
  // OCP OFP8
  e4m3: floating({ exponentBits: 4, mantissaBits: 3, bias: 7, specials: "nanOnly" }),
  // OCP OFP8
  e5m2: floating({ exponentBits: 5, mantissaBits: 2, bias: 15, specials: "ieee" }),
  // OCP MX 1.0 FP4
  e2m1: floating({ exponentBits: 2, mantissaBits: 1, bias: 1, specials: "finite" }),
  // OCP MX 1.0 FP6
  e2m3: floating({ exponentBits: 2, mantissaBits: 3, bias: 1, specials: "finite" }),
  // OCP MX 1.0 FP6
  e3m2: floating({ exponentBits: 3, mantissaBits: 2, bias: 3, specials: "finite" }),
  // OCP MX 1.0 scale
  e8m0: floating({
    exponentBits: 8,
    mantissaBits: 0,
    bias: 127,
    specials: "nanOnly",
    signed: false,
    subnormals: false,
  }),
  e4m3fnuz: floating({ exponentBits: 4, mantissaBits: 3, bias: 8, specials: "fnuz" }),
  e5m2fnuz: floating({ exponentBits: 5, mantissaBits: 2, bias: 16, specials: "fnuz" }),
  e3m4: floating({ exponentBits: 3, mantissaBits: 4, bias: 3, specials: "ieee" }),
  // ml_dtypes' float8_e4m3
  e4m3ieee: floating({ exponentBits: 4, mantissaBits: 3, bias: 7, specials: "ieee" }),
  bf16: floating({ exponentBits: 8, mantissaBits: 7, bias: 127, specials: "ieee" }),
  // IEEE 754 binary16
  f16: floating({ exponentBits: 5, mantissaBits: 10, bias: 15, specials: "ieee" }),
  // stored in 32 bits, the code in the low 19
  tf32: floating({ exponentBits: 8, mantissaBits: 10, bias: 127, specials: "ieee" }),
  int8: integer({ bits: 8, fractionBits: 0, specials: "integer" }),
  // OCP MX 1.0 INT8, in steps of 2^-6; the name is from PTX
  s2f6: integer({ bits: 8, fractionBits: 6, specials: "symmetric" }),
  // CUDA 13.5's __nv_fp8_ue5m3, a scale of FP4 blocks
  ue5m3: floating({ exponentBits: 5, mantissaBits: 3, bias: 15, specials: "nanOnly", signed: false }),
  int4: integer({ bits: 4, fractionBits: 0, specials: "integer" }),
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
