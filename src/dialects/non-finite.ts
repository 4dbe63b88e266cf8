/**
 * The treatment of NaN and infinities by packages, where it differs from numerics.md.
 * conformance/tests/dialects/table/package-results.test.ts compares it with recorded answers of the packages.
 */

/** A package's treatment of NaN and infinities. A field is absent where this library's quantizers give the same bits. */
export interface NonFinite {
  /** The result for a NaN in the input. */
  readonly nan?: string;
  /** The result for an infinity in the input. */
  readonly infinity?: string;
}

/** f32 scales: the amax is NaN, so the scale and all quotients are NaN. */
export const NAN_SPREADS: NonFinite = {
  nan: "one NaN makes the scale NaN, and every code under that scale",
};

/** Integers have no NaN. */
export const NAN_IS_ZEROS: NonFinite = {
  nan: "one NaN makes the scale NaN, and every code under that scale 0",
};

export const TORCHAO_MX: NonFinite = {
  nan: "one NaN makes the scale of its block NaN, and the other codes zeros; formats without NaN have a code that means nothing",
  infinity: "the scale of a block with an infinity is 2^(128 - emax)",
};

export const TORCHAO_RCEIL: NonFinite = {
  nan: "one NaN makes the scale of its block NaN, and its codes NaN; formats without NaN have codes that mean nothing",
};

export const TORCHAO_NVFP4: NonFinite = {
  nan: "one NaN makes the scale of its block NaN, and its codes mean nothing",
};

export const TORCHAO_TWO_LEVEL: NonFinite = {
  nan: "one NaN makes all scales NaN, and codes mean nothing",
  infinity: "an infinity makes the scale of its block NaN, and codes mean nothing",
};

/** The payload of the NaN is read as an exponent. */
const CT_NAN = "the scale of a block with a NaN depends on the NaN's payload and on the processor";

export const CT_MXFP8: NonFinite = { nan: CT_NAN };

export const CT_MX: NonFinite = { nan: CT_NAN, infinity: "an infinity has the code of a zero" };

export const CT_NVFP4: NonFinite = {
  nan: "one NaN makes the scale of the tensor 1 and the scale of its block NaN",
  infinity: "an infinity makes the scale of its block NaN, and codes mean nothing",
};

export const MODELOPT_MXFP8: NonFinite = {
  nan: "the scale of a block with a NaN is 2^-127, and its other codes are the largest",
};

export const MODELOPT_MXFP4: NonFinite = {
  nan: "the scale of a block with a NaN is 2^-127, and all of its codes are minus zero",
  infinity: "the scale of a block with an infinity is 2^-127, and all of its codes are zeros",
};

export const MODELOPT_NVFP4: NonFinite = {
  nan: "one NaN makes all scales NaN, and all codes the largest",
};

export const DEEPSEEK_MXFP4: NonFinite = {
  nan: "the scale of a block with a NaN is 2^127, and its codes are 0",
};

export const DEEPSEEK_UE8M0: NonFinite = { nan: "the scale of a block with a NaN is 2^127" };

export const GGUF_MXFP4: NonFinite = {
  nan: "the scale byte of a block with a NaN is 0",
  infinity: "the scale byte of a block with an infinity is 0",
};

/** The recorded answers contain no such values. */
export const NOT_RECORDED: NonFinite = { nan: "not recorded", infinity: "not recorded" };

export const TRITON_MX: NonFinite = {
  nan: "the scale of a block with a NaN depends on the NaN's payload",
  infinity: "the scale of a block with an infinity is NaN",
};

export const QUARK: NonFinite = {
  nan: "the scale of a block with a NaN is 65536, and the code of the NaN is the largest",
  infinity: "the code of an infinity is 6",
};
