/**
 * The dialects, one row each: how another library scales, rounds and stores. A row names what determines the bits (a quantizer
 * and its settings) and the tensors in the library's own files. docs/dialects.md lists the rows. Recorded answers of each library
 * are replayed in conformance/tests/dialects.
 */
import type { DialectValues } from "../explain/dequantized.js";
import type { BlockFormatName, Tile } from "../formats/block.js";
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import type { NonFinite } from "./non-finite.js";
import * as nonFinite from "./non-finite.js";
import type { Undecided } from "./undecided.js";

/** A quantizer with the settings that a dialect fixes. Other options keep their defaults. */
export interface DialectForm {
  /** The quantizer: a key of `BLOCK_FORMATS`. */
  readonly quantizer: BlockFormatName;
  /** The element formats, the default first. If absent, all formats of the quantizer. */
  readonly formats?: readonly ScalarFormat[];
  /** The tiles, the default first. If absent, all tiles of the quantizer. */
  readonly tiles?: readonly Tile[];
  /** The settings that the dialect fixes. */
  readonly fixed: {
    readonly scaleRule?: ScaleRuleName;
    readonly elementScaling?: ElementScalingName;
    readonly amaxEpsilon?: number;
    readonly amaxLimit?: number;
  };
}

/** A tensor of a quantized weight [N, K] in the library's own files. */
export interface DialectTensor {
  /** Its name or suffix. */
  readonly name: string;
  /** Its safetensors dtype. */
  readonly dtype: string;
  /** Its shape, in terms of N and K. */
  readonly shape: string;
  /** Its contents: codes, scales that multiply, scales that divide, or the shape of packed codes. */
  readonly role: "codes" | "multiplier" | "divisor" | "logicalShape";
}

/** One row of `DIALECTS`. */
export interface Dialect {
  /** A summary in a few words. */
  readonly summary: string;
  /** Its quantizers. If there are several, the caller chooses one. */
  readonly forms: readonly DialectForm[];
  /** How the library dequantizes. Absent if it does not; `dequantize` then defines the values. */
  readonly values?: DialectValues;
  /** The tensors of a weight in the library's files; empty if the dialect has no files of its own. */
  readonly tensors: readonly DialectTensor[];
  /** The package's treatment of NaN and infinities where it differs from numerics.md; absent if it does not. */
  readonly nonFinite?: NonFinite;
  /** Finite inputs for which the package's result is undefined; absent if there are none. */
  readonly undecided?: Undecided;
  /** The package, version and function, or the specification, that the row follows. */
  readonly source: string;
}

const TORCHAO = "torchao 0.18.0, to_mx";
const TORCHAO_NVFP4 = "torchao 0.18.0, nvfp4_quantize";
const CT = "compressed-tensors 0.20.0";
const MODELOPT = "nvidia-modelopt 0.47.0";
const DEEPGEMM = "DeepGEMM, deep_gemm/utils/math.py";

const OCP_FP8 = ["e4m3", "e5m2"] as const;
const OF_SOURCE: DialectValues = { type: "source" };
const OF_BF16: DialectValues = { type: "bf16" };

const WEIGHT: DialectTensor = { name: "weight", dtype: "F8_E4M3", shape: "[N, K]", role: "codes" };
/** Two codes to a byte, with the even column in the low nibble. */
const PACKED: DialectTensor = { name: "weight_packed", dtype: "U8", shape: "[N, K/2]", role: "codes" };
const TORCHAO_PACKED: DialectTensor = { ...PACKED, name: "_weight_qdata" };
const scale = (dtype: string, shape: string, name = "weight_scale"): DialectTensor => ({
  name,
  dtype,
  shape,
  role: "multiplier",
});
const BLOCKS = "[ceil(N/128), ceil(K/128)]";
const TILE = ["128x128"] as const;

const FBGEMM_ROW = [WEIGHT, scale("F32", "[N, 1]")] as const;

const row = (
  scaleRule: ScaleRuleName,
  elementScaling: ElementScalingName,
  bounds: { readonly amaxEpsilon?: number; readonly amaxLimit?: number } = {},
): DialectForm => ({
  quantizer: "fp8-row",
  formats: ["e4m3"],
  fixed: { scaleRule, elementScaling, ...bounds },
});

const mx = (
  quantizer: BlockFormatName,
  scaleRule: ScaleRuleName,
  elementScaling: ElementScalingName = "multiply",
  formats?: readonly ScalarFormat[],
): DialectForm => ({
  quantizer,
  tiles: ["1x32"],
  fixed: { scaleRule, elementScaling },
  ...(formats ? { formats } : {}),
});

const nv = (scaleRule: ScaleRuleName, elementScaling: ElementScalingName = "multiply"): DialectForm => ({
  quantizer: "nvfp4",
  tiles: ["1x16"],
  fixed: { scaleRule, elementScaling },
});

const torchao = (quantizer: BlockFormatName, mode: string, rule: ScaleRuleName): Dialect => ({
  summary: `${quantizer.toUpperCase()} of torchao, ScaleCalculationMode.${mode}`,
  forms: [mx(quantizer, rule, mode === "RCEIL" ? "multiplyUnlessLeast" : "multiplyFromNormal")],
  values: OF_SOURCE,
  tensors: [
    { name: "_weight_qdata", dtype: "by format", shape: "[N, K], MXFP4 [N, K/2]", role: "codes" },
    scale("F8_E8M0", "[N, K/32]; may be swizzled", "_weight_scale"),
  ],
  nonFinite: mode === "RCEIL" ? nonFinite.TORCHAO_RCEIL : nonFinite.TORCHAO_MX,
  source: TORCHAO,
});

const ocp = (quantizer: BlockFormatName): Dialect => ({
  summary: `${quantizer.toUpperCase()} as the specification of the Open Compute Project has it, ties to even`,
  forms: [mx(quantizer, "e8m0Floor")],
  tensors: [],
  source: "OCP Microscaling Formats 1.0, section 6.3",
});

/** Every dialect by its name. */
export const DIALECTS = {
  te: {
    summary: "TransformerEngine: what quantizers of this library do by default",
    forms: [
      { quantizer: "mxfp8", fixed: { scaleRule: "e8m0Up", elementScaling: "multiply" } },
      { quantizer: "fp8-current", formats: OCP_FP8, fixed: { scaleRule: "f32", elementScaling: "multiply" } },
      { quantizer: "fp8-block", formats: OCP_FP8, fixed: { scaleRule: "f32", elementScaling: "multiply" } },
      { quantizer: "nvfp4", fixed: { scaleRule: "twoLevel", elementScaling: "multiply" } },
    ],
    tensors: [],
    source: "TransformerEngine at commit d0067d0da",
  },
  "ocp-mxfp8": ocp("mxfp8"),
  "ocp-mxfp6": ocp("mxfp6"),
  "ocp-mxfp4": ocp("mxfp4"),
  "ocp-mxint8": ocp("mxint8"),
  "torchao-mxfp8-floor": torchao("mxfp8", "FLOOR", "e8m0Floor"),
  "torchao-mxfp8-rceil": torchao("mxfp8", "RCEIL", "e8m0UpLog2"),
  "torchao-mxfp8-ceil": torchao("mxfp8", "CEIL", "e8m0Ceil"),
  "torchao-mxfp8-even": torchao("mxfp8", "EVEN", "e8m0Even"),
  "torchao-mxfp6-floor": torchao("mxfp6", "FLOOR", "e8m0Floor"),
  "torchao-mxfp6-rceil": torchao("mxfp6", "RCEIL", "e8m0UpLog2"),
  "torchao-mxfp6-ceil": torchao("mxfp6", "CEIL", "e8m0Ceil"),
  "torchao-mxfp6-even": torchao("mxfp6", "EVEN", "e8m0Even"),
  "torchao-mxfp4-floor": torchao("mxfp4", "FLOOR", "e8m0Floor"),
  "torchao-mxfp4-rceil": torchao("mxfp4", "RCEIL", "e8m0UpLog2"),
  "torchao-mxfp4-ceil": torchao("mxfp4", "CEIL", "e8m0Ceil"),
  "torchao-mxfp4-even": torchao("mxfp4", "EVEN", "e8m0Even"),
  "torchao-nvfp4": {
    summary: "NVFP4 of torchao without a scale of the tensor",
    forms: [nv("e4m3Quotient")],
    values: OF_SOURCE,
    tensors: [TORCHAO_PACKED, scale("F8_E4M3", "[N, K/16]; may be swizzled", "_weight_scale")],
    nonFinite: nonFinite.TORCHAO_NVFP4,
    source: TORCHAO_NVFP4,
  },
  "torchao-nvfp4-two-level": {
    summary: "NVFP4 of torchao with per_tensor_scale",
    forms: [nv("twoLevelQuotient")],
    values: OF_SOURCE,
    tensors: [
      TORCHAO_PACKED,
      scale("F8_E4M3", "[N, K/16]; may be swizzled", "_weight_scale"),
      scale("F32", "[]", "_weight_per_tensor_scale"),
    ],
    nonFinite: nonFinite.TORCHAO_TWO_LEVEL,
    undecided: {
      tensorScale: 2 ** -128,
      because:
        "the scale of the tensor has no finite reciprocal: elements are NaN, and their codes are cut from its bits",
    },
    source: TORCHAO_NVFP4,
  },
  "torchao-fp8-tensor": {
    summary: "FP8 with one scale, Float8Tensor with PerTensor granularity",
    forms: [
      {
        quantizer: "fp8-current",
        formats: ["e4m3"],
        fixed: { scaleRule: "f32QuotientTyped", elementScaling: "divide" },
      },
    ],
    values: OF_SOURCE,
    tensors: [{ ...WEIGHT, name: "_weight_qdata" }, scale("F32", "[1, 1]", "_weight_scale")],
    nonFinite: nonFinite.NAN_SPREADS,
    source: "torchao 0.18.0, Float8Tensor.from_hp",
  },
  "torchao-fp8-row": {
    summary: "FP8 with a scale for each row, Float8Tensor with PerRow granularity",
    forms: [row("f32QuotientTyped", "divide")],
    values: OF_SOURCE,
    tensors: [{ ...WEIGHT, name: "_weight_qdata" }, scale("F32", "[N, 1]", "_weight_scale")],
    nonFinite: nonFinite.NAN_SPREADS,
    undecided: { columns: 1, because: "it refuses a matrix of one column" },
    source: "torchao 0.18.0, Float8Tensor.from_hp",
  },
  "ct-fp8-tensor": {
    summary: "compressed-tensors' float-quantized, strategy tensor",
    forms: [
      {
        quantizer: "fp8-current",
        formats: ["e4m3"],
        fixed: { scaleRule: "f32QuotientLeast", elementScaling: "divideTypedAdd" },
      },
    ],
    values: OF_SOURCE,
    tensors: [WEIGHT, scale("the model's", "[1]")],
    nonFinite: nonFinite.NAN_SPREADS,
    source: CT,
  },
  "ct-fp8-channel": {
    summary: "compressed-tensors' float-quantized, strategy channel",
    forms: [row("f32QuotientLeast", "divideTypedAdd")],
    values: OF_SOURCE,
    tensors: [WEIGHT, scale("the model's", "[N, 1]")],
    nonFinite: nonFinite.NAN_SPREADS,
    source: CT,
  },
  "ct-int8-channel": {
    summary: "compressed-tensors' int-quantized, strategy channel",
    forms: [
      { quantizer: "int8-row", fixed: { scaleRule: "f32QuotientRange", elementScaling: "divideTypedAdd" } },
    ],
    values: OF_SOURCE,
    tensors: [{ ...WEIGHT, dtype: "I8" }, scale("the model's", "[N, 1]")],
    nonFinite: nonFinite.NAN_IS_ZEROS,
    source: CT,
  },
  "ct-int4-group": {
    summary: "compressed-tensors' pack-quantized of 4 bits, strategy group",
    forms: [
      {
        quantizer: "int4-group",
        tiles: ["1x128", "1x64", "1x32"],
        fixed: { scaleRule: "f32QuotientRange", elementScaling: "divideTypedAdd" },
      },
    ],
    values: OF_SOURCE,
    tensors: [
      { name: "weight_packed", dtype: "I32", shape: "[N, K/8]; codes plus 8", role: "codes" },
      scale("the model's", "[N, K/128]"),
      { name: "weight_shape", dtype: "I64", shape: "[2]", role: "logicalShape" },
    ],
    nonFinite: nonFinite.NAN_IS_ZEROS,
    source: CT,
  },
  "ct-fp8-block": {
    summary: "compressed-tensors' float-quantized, strategy block",
    forms: [
      {
        quantizer: "fp8-block",
        formats: ["e4m3"],
        tiles: TILE,
        fixed: { scaleRule: "f32QuotientLeast", elementScaling: "divideTypedAdd" },
      },
    ],
    values: OF_SOURCE,
    tensors: [WEIGHT, scale("the model's", BLOCKS)],
    nonFinite: nonFinite.NAN_SPREADS,
    source: CT,
  },
  "ct-mxfp8": {
    summary: "compressed-tensors' mxfp8-quantized",
    forms: [mx("mxfp8", "e8m0EvenShort", "multiplyTypedAdd", ["e4m3"])],
    values: OF_BF16,
    tensors: [WEIGHT, scale("U8", "[N, K/32]")],
    nonFinite: nonFinite.CT_MXFP8,
    source: CT,
  },
  "ct-mxfp6": {
    summary: "compressed-tensors' mxfp6-pack-quantized",
    forms: [mx("mxfp6", "e8m0EvenShort", "multiply", ["e2m3"])],
    values: OF_BF16,
    tensors: [{ ...PACKED, shape: "[N, 3K/4]" }, scale("U8", "[N, K/32]")],
    nonFinite: nonFinite.CT_MX,
    source: CT,
  },
  "ct-mxfp4": {
    summary: "compressed-tensors' mxfp4-pack-quantized",
    forms: [mx("mxfp4", "e8m0EvenShort", "multiplyTypedAdd")],
    values: OF_BF16,
    tensors: [PACKED, scale("U8", "[N, K/32]")],
    nonFinite: nonFinite.CT_MX,
    source: CT,
  },
  "ct-nvfp4": {
    summary: "compressed-tensors' nvfp4-pack-quantized",
    forms: [nv("twoLevelDivisor", "divideAdd")],
    values: OF_BF16,
    tensors: [
      PACKED,
      scale("F8_E4M3", "[N, K/16]"),
      { name: "weight_global_scale", dtype: "F32", shape: "[1]", role: "divisor" },
    ],
    nonFinite: nonFinite.CT_NVFP4,
    source: CT,
  },
  "modelopt-fp8": {
    summary: "ModelOpt's FP8 with one scale, as its exporter writes it",
    forms: [
      {
        quantizer: "fp8-current",
        formats: ["e4m3"],
        fixed: { scaleRule: "f32Quotient", elementScaling: "divideTyped" },
      },
    ],
    values: { type: "source", typedScale: true },
    tensors: [WEIGHT, scale("F32", "[]")],
    nonFinite: nonFinite.NAN_SPREADS,
    source: `${MODELOPT}, to_quantized_weight`,
  },
  "modelopt-fp8-block": {
    summary: "ModelOpt's FP8QTensor with blocks of 128x128",
    forms: [
      {
        quantizer: "fp8-block",
        formats: ["e4m3"],
        tiles: TILE,
        fixed: { scaleRule: "f32QuotientTyped", elementScaling: "divideTyped" },
      },
    ],
    values: OF_SOURCE,
    tensors: [WEIGHT, scale("the model's", BLOCKS)],
    nonFinite: nonFinite.NAN_SPREADS,
    source: `${MODELOPT}, FP8QTensor.quantize`,
  },
  "modelopt-int8-row": {
    summary: "ModelOpt's INT8QTensor with a scale for each row",
    forms: [
      { quantizer: "int8-row", fixed: { scaleRule: "f32QuotientTyped", elementScaling: "divideTyped" } },
    ],
    values: OF_SOURCE,
    tensors: [{ ...WEIGHT, dtype: "I8" }, scale("the model's", "[N, 1]")],
    nonFinite: nonFinite.NAN_IS_ZEROS,
    source: `${MODELOPT}, INT8QTensor.quantize`,
  },
  "modelopt-int4-block": {
    summary: "ModelOpt's INT4 with a scale for each block, as its exporter packs it",
    forms: [
      {
        quantizer: "int4-group",
        tiles: ["1x128", "1x64", "1x32"],
        fixed: { scaleRule: "f32Quotient", elementScaling: "divide" },
      },
    ],
    tensors: [],
    nonFinite: nonFinite.NAN_IS_ZEROS,
    source: `${MODELOPT}, to_quantized_weight`,
  },
  "modelopt-mxfp8": {
    summary: "ModelOpt's MXFP8QTensor",
    forms: [mx("mxfp8", "e8m0UpLog2", "multiply", ["e4m3"])],
    values: OF_SOURCE,
    tensors: [WEIGHT, scale("U8", "[N, K/32]")],
    nonFinite: nonFinite.MODELOPT_MXFP8,
    source: `${MODELOPT}, MXFP8QTensor.quantize`,
  },
  "modelopt-mxfp4": {
    summary: "ModelOpt's MXFP4QTensor: ties toward zero, and zero is minus zero",
    forms: [mx("mxfp4", "e8m0UpLog2", "multiplyHalfDownMinus")],
    values: OF_SOURCE,
    tensors: [{ ...PACKED, name: "weight" }, scale("U8", "[N*K/32, 1]")],
    nonFinite: nonFinite.MODELOPT_MXFP4,
    source: `${MODELOPT}, MXFP4QTensor.quantize`,
  },
  "modelopt-nvfp4": {
    summary: "ModelOpt's NVFP4QTensor",
    forms: [nv("twoLevelProduct", "divideAdd")],
    values: { type: "source", plusZero: true },
    tensors: [
      { ...PACKED, name: "weight" },
      scale("F8_E4M3", "[N, K/16]"),
      scale("F32", "[]", "weight_scale_2"),
    ],
    nonFinite: nonFinite.MODELOPT_NVFP4,
    source: `${MODELOPT}, NVFP4QTensor.quantize`,
  },
  "deepseek-mxfp4": {
    summary: "DeepGEMM's FP4 with scales of 32, ties toward zero, and one zero",
    forms: [mx("mxfp4", "e8m0UpLeast", "multiplyHalfDown")],
    values: { type: "f32" },
    tensors: [
      { name: "weight", dtype: "I8", shape: "[N, K/2]", role: "codes" },
      scale("F32, or F8_E8M0", "[N, K/32]", "scale"),
    ],
    nonFinite: nonFinite.DEEPSEEK_MXFP4,
    source: `${DEEPGEMM}, per_token_cast_to_fp4`,
  },
  "deepseek-fp8-block": {
    summary: "DeepSeek V3's block FP8: 128x128 for weights, 1x128 for activations",
    forms: [
      {
        quantizer: "fp8-block",
        formats: ["e4m3"],
        tiles: ["128x128", "1x128"],
        fixed: { scaleRule: "f32Quotient", elementScaling: "multiply", amaxEpsilon: Math.fround(1e-4) },
      },
    ],
    tensors: [WEIGHT, scale("F32", BLOCKS, "weight_scale_inv")],
    nonFinite: nonFinite.NAN_SPREADS,
    source: `${DEEPGEMM}, per_block_cast_to_fp8 and per_token_cast_to_fp8`,
  },
  "deepseek-ue8m0": {
    summary: "DeepSeek V3.1's block FP8, whose scales are powers of two",
    forms: [
      {
        quantizer: "fp8-block",
        formats: ["e4m3"],
        tiles: ["128x128", "1x128"],
        fixed: { scaleRule: "f32QuotientUp", elementScaling: "multiply", amaxEpsilon: Math.fround(1e-4) },
      },
    ],
    tensors: [WEIGHT, scale("F32, or F8_E8M0", BLOCKS, "weight_scale_inv")],
    nonFinite: nonFinite.DEEPSEEK_UE8M0,
    source: `${DEEPGEMM}, with use_ue8m0`,
  },
  "transformers-fp8-block": {
    summary: "the fine-grained FP8 of transformers",
    forms: [
      { quantizer: "fp8-block", formats: ["e4m3"], tiles: TILE, fixed: { scaleRule: "f32Reciprocal" } },
    ],
    values: OF_SOURCE,
    tensors: [WEIGHT, scale("F32", "[N/128, K/128]", "weight_scale_inv")],
    nonFinite: nonFinite.NAN_SPREADS,
    source: "transformers 5.23, Fp8Quantize",
  },
  "gguf-mxfp4": {
    summary: "gguf-py's MXFP4, as GGUF files have it: ties toward zero, and one zero",
    forms: [mx("mxfp4", "e8m0FloorLog2", "multiplyBoundedHalfDown")],
    values: { type: "f32", plusZero: true, finiteScales: true },
    tensors: [
      {
        name: "weight",
        dtype: "MXFP4 of GGUF",
        shape: "[N, K/2]; bytes 1 to 16 of each block of 17",
        role: "codes",
      },
      scale("MXFP4 of GGUF", "[N, K/32]; byte 0 of each block of 17", "weight"),
    ],
    nonFinite: nonFinite.GGUF_MXFP4,
    source: "gguf 0.19.0, gguf.quants.quantize",
  },
  "gguf-nvfp4": {
    summary:
      "ggml's NVFP4 without a scale of the tensor, as GGUF files have it: ties toward zero, and one zero",
    forms: [nv("e4m3HalfUp", "divideHalfDown")],
    values: { type: "f32", plusZero: true },
    tensors: [
      {
        name: "weight",
        dtype: "NVFP4 of GGUF",
        shape: "[N, K/2]; bytes 4 to 35 of each block of 36",
        role: "codes",
      },
      scale("NVFP4 of GGUF", "[N, K/16]; bytes 0 to 3 of each block of 36", "weight"),
    ],
    nonFinite: nonFinite.NOT_RECORDED,
    undecided: {
      amax: 2 ** 33,
      because:
        "an f32 does not hold the differences of elements so large and codes, so that several errors are equal",
    },
    source: "libggml-python 0.20.2, quantize_row_nvfp4_ref",
  },
  "gptoss-mxfp4": {
    summary: "the MXFP4 of gpt-oss, by triton_kernels: ties away from zero",
    forms: [mx("mxfp4", "e8m0UpNormal", "multiplyHalfAway")],
    values: { type: "bf16", finiteScales: true },
    tensors: [
      { name: "_blocks", dtype: "U8", shape: "[E, N, K/32, 16]", role: "codes" },
      scale("U8", "[E, N, K/32]", "_scales"),
    ],
    nonFinite: nonFinite.TRITON_MX,
    source:
      "triton_kernels of vLLM 0.22.1, downcast_to_mxfp_torch; transformers 5.23, convert_moe_packed_tensors",
  },
  "triton-mxfp8": {
    summary: "the MXFP8 of triton_kernels: no scale below 2^-126 but that of zeros",
    forms: [mx("mxfp8", "e8m0UpNormal")],
    values: OF_SOURCE,
    tensors: [],
    nonFinite: nonFinite.TRITON_MX,
    source: "triton_kernels of vLLM 0.22.1, downcast_to_mxfp_torch",
  },
  "quark-amdfp4": {
    summary:
      "AMD Quark's AMDFP4 with groups of 16: unsigned e5m3 scales without one of the tensor, and one zero",
    forms: [
      {
        quantizer: "fp4-ue5m3",
        tiles: ["1x16"],
        fixed: { scaleRule: "ue5m3Quotient", elementScaling: "dividePlusZero" },
      },
    ],
    values: { type: "f32" },
    tensors: [],
    nonFinite: nonFinite.QUARK,
    source: "amd-quark 0.13, PerBlockMXObserver and scaled_real_quantize",
  },
  "fbgemm-fp8": {
    summary: "FBGEMM's quantize_fp8_row, a scale for each row",
    forms: [row("f32Reciprocal", "multiply", { amaxEpsilon: Math.fround(1e-12) })],
    tensors: FBGEMM_ROW,
    nonFinite: nonFinite.NAN_SPREADS,
    source: "fbgemm-gpu-genai, quantize_fp8_row on a CPU",
  },
  "fbgemm-fp8-ub1200": {
    summary:
      "FBGEMM's quantize_fp8_row with the upper bound 1200 of the amax, as Llama's activations have it",
    forms: [row("f32Reciprocal", "multiply", { amaxEpsilon: Math.fround(1e-12), amaxLimit: 1200 })],
    tensors: FBGEMM_ROW,
    nonFinite: nonFinite.NAN_SPREADS,
    source: "fbgemm-gpu-genai, quantize_fp8_row with scale_ub on a CPU",
  },
  "fbgemm-fp8-block": {
    summary: "FBGEMM's quantize_fp8_block with blocks of 128x128",
    forms: [
      {
        quantizer: "fp8-block",
        formats: ["e4m3"],
        tiles: TILE,
        fixed: { scaleRule: "f32Reciprocal", amaxEpsilon: Math.fround(1e-12) },
      },
    ],
    tensors: [],
    nonFinite: nonFinite.NAN_SPREADS,
    source: "fbgemm-gpu-genai, quantize_fp8_block on a CPU",
  },
} as const satisfies Record<string, Dialect>;

/** The name of a dialect. */
export type DialectName = keyof typeof DIALECTS;

/** The names of the dialects, in table order. */
export const DIALECT_NAMES = Object.keys(DIALECTS) as readonly DialectName[];
