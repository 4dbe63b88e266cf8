/**
 * The conventions of checkpoints, one row each: which tensors a quantized weight has on disk, and their meaning. Rows with the
 * same names are distinguished by the types of the tensors, then by the configuration, then by the shape of the scales.
 */
import type { FileDType } from "../../io/dtypes.js";
import { BLOCK_SCALES } from "../gguf/views.js";
import { type CodeTypeName, E4M3_BYTES, E8M0_HALVES, UE4M3_HALVES } from "./code-types.js";
import type { PackingName } from "./packing-names.js";

/**
 * The elements that share a scale, for codes [..., N, K]: the `whole` tensor (scale shape [] or [1]), a `row` ([..., N, 1]), a
 * `column` ([..., 1, K] or [..., K, 1]), a `tile` of rows and columns ([ceil(N/n), ceil(K/k)]), or a `group` within a row ([...,
 * N, K/g]).
 */
export type ScaleKind = "whole" | "row" | "column" | "tile" | "group";

/** A file format with its own conventions. */
export type Container = "gguf";

/** A tensor of a quantized weight: the suffix of its name, and its possible types. */
export interface Part {
  readonly suffix: string;
  readonly dtypes: readonly FileDType[];
}

/** One row of `CONVENTIONS`. */
export interface Convention {
  /** A short description of the convention. */
  readonly summary: string;
  /** The tensor of codes. `packing`: how codes are packed, if not element by element in rows. */
  readonly codes: Part & { readonly packing?: PackingName };
  readonly type: CodeTypeName;
  /** The tensor of scales. `values`: the value of each possible scale byte, if the type does not determine it. */
  readonly scale: Part & { readonly values?: Float32Array };
  /** The possible kinds of scales. Likelier kinds come first. */
  readonly kinds: readonly ScaleKind[];
  /** The number of elements of a group, if the convention fixes it. */
  readonly group?: number;
  /** The rows and columns of a block, unless the configuration says otherwise. */
  readonly block?: readonly [number, number];
  /**
   * The global scale, in addition to group scales. `role`: whether codes are multiplied or divided by the global scale. `fused`:
   * whether loaders use one global scale for all projections that they fuse.
   */
  readonly global?: Part & {
    readonly role: "multiplier" | "divisor";
    readonly fused?: true;
    /** Whether a weight may lack the global scale. */
    readonly optional?: true;
    /** Whether each matrix of a stack has a global scale, so that the tensor has shape [...]. */
    readonly stacked?: true;
  };
  /**
   * The zero points that are subtracted from codes, one for each scale. `packed`: zero points are packed along columns, in the
   * way in which codes are packed along rows.
   */
  readonly zeros?: Part & { readonly packed?: true };
  /** The suffix of the tensor of group indices, one for each column (`g_idx`). */
  readonly order?: string;
  /**
   * The suffix of the tensor of column factors. Libraries multiply activations by these factors, which is equivalent to
   * multiplying the columns of the weight.
   */
  readonly factors?: string;
  /** The suffix of a tensor that every weight of this convention has, and no weight of another convention. */
  readonly marker?: string;
  /**
   * The convention that has the same tensors and one more tensor. In a file of that convention, a weight of this convention is
   * incomplete.
   */
  readonly lesserOf?: string;
  /** Whether the library stores an unquantized weight as [..., K, N]. */
  readonly transposedWide?: true;
  /**
   * Whether row scales may also be [N], and tile scales [ceil(N/n), 1, ceil(K/k), 1], which a block amax with `keepdim` gives.
   */
  readonly reducedScales?: true;
  /** Whether the file may declare that scales are swizzled for tensor cores. */
  readonly maySwizzle?: true;
  /** Whether scales are always swizzled. */
  readonly swizzles?: true;
  /** The file format, if it is not safetensors. */
  readonly container?: Container;
  /** The `quant_method` of configurations that declare the convention. */
  readonly methods: readonly string[];
  /** The `format` or `quant_algo` of such a configuration; absent if the method determines the convention. */
  readonly formats?: readonly string[];
  /** The suffixes of further tensors of the weight. */
  readonly others?: readonly string[];
  /** The package or the published model that the row follows. */
  readonly source: string;
}

const WIDE: readonly FileDType[] = ["F32", "BF16", "F16"];
const WEIGHT: Part = { suffix: ".weight", dtypes: ["F8_E4M3"] };
const FOUR: Part = { suffix: ".weight", dtypes: ["U8", "F4"] };
const PACKED: Part = { suffix: ".weight_packed", dtypes: ["U8", "F4"] };
const SCALE = ".weight_scale";
const E8M0: Part = { suffix: SCALE, dtypes: ["U8", "F8_E8M0"] };
const CT = {
  methods: ["compressed-tensors"],
  zeros: { suffix: ".weight_zero_point", dtypes: ["I8"] },
  order: ".weight_g_idx",
  others: [
    ".input_scale",
    ".input_zero_point",
    ".input_global_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
  ],
  source: "compressed-tensors 0.20.0",
} as const;
/** Integers of 1 to 8 bits in words. `weight_shape` or the configuration determines the width. */
const CT_WORDS = {
  ...CT,
  codes: { suffix: ".weight_packed", dtypes: ["I32"], packing: "words" },
  scale: { suffix: SCALE, dtypes: WIDE },
  kinds: ["group", "row", "whole"],
  zeros: { ...CT.zeros, dtypes: ["I32"], packed: true },
  formats: ["pack-quantized"],
} as const;
const MODELOPT = {
  methods: ["modelopt"],
  others: [".input_scale", ".pre_quant_scale"],
  source: "nvidia-modelopt 0.47.0",
} as const;
const MODELOPT_NVFP4 = {
  codes: FOUR,
  type: "e2m1",
  scale: { suffix: SCALE, dtypes: ["F8_E4M3"] },
  kinds: ["group"],
  global: { suffix: ".weight_scale_2", dtypes: ["F32"], role: "multiplier", fused: true },
  factors: ".pre_quant_scale",
} as const;
const QUARK = { methods: ["quark"], others: [".input_scale"], source: "amd-quark 0.13" } as const;
const MLX = { methods: ["mlx"], source: "mlx 0.30, mlx.core.quantize" } as const;
const MLX_SCALES: Part = { suffix: ".scales", dtypes: ["U8"] };
const WORDS: Part = { suffix: ".weight", dtypes: ["U32"] };
/** Parameters of vLLM's fused experts. */
const VLLM = {
  methods: ["mxfp4", "compressed-tensors", "modelopt", "quark", "fp8"],
  source: "vLLM's FusedMoE: w13_weight, w2_weight",
} as const;
const FUSED = "_weight";
const COMFY_MARKED = {
  marker: ".comfy_quant",
  methods: [],
  others: [".comfy_quant", ".input_scale"],
  source: "comfy-kitchen 0.2.40",
} as const;
const TORCHAO = {
  methods: ["torchao"],
  maySwizzle: true,
  source: "torchao 0.18.0, flatten_tensor_state_dict",
} as const;
const GGML = { kinds: ["group"], container: "gguf", methods: [], source: "gguf 0.19.0" } as const;
const QDATA = "._weight_qdata";
const AO_SCALE = "._weight_scale";

/** Every convention by its name. Among conventions with the same tensor names, the likelier convention comes first. */
export const CONVENTIONS = {
  "ct-float": {
    summary: "compressed-tensors float-quantized",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: SCALE, dtypes: WIDE },
    kinds: ["whole", "row", "tile", "group"],
    block: [128, 128],
    formats: ["float-quantized", "naive-quantized"],
    ...CT,
  },
  "ct-nvfp4": {
    summary: "compressed-tensors nvfp4-pack-quantized",
    codes: PACKED,
    type: "e2m1",
    scale: { suffix: SCALE, dtypes: ["F8_E4M3"] },
    kinds: ["group"],
    group: 16,
    global: { suffix: ".weight_global_scale", dtypes: ["F32"], role: "divisor", fused: true },
    formats: ["nvfp4-pack-quantized"],
    ...CT,
  },
  "ct-mxfp4": {
    summary: "compressed-tensors mxfp4-pack-quantized",
    codes: PACKED,
    type: "e2m1",
    scale: E8M0,
    kinds: ["group"],
    group: 32,
    formats: ["mxfp4-pack-quantized"],
    ...CT,
  },
  "ct-mxfp6": {
    summary: "compressed-tensors mxfp6-pack-quantized",
    codes: { suffix: ".weight_packed", dtypes: ["U8", "F6_E2M3", "F6_E3M2"] },
    type: "e2m3",
    scale: E8M0,
    kinds: ["group"],
    group: 32,
    formats: ["mxfp6-pack-quantized"],
    ...CT,
  },
  "ct-mxfp8": {
    summary: "compressed-tensors mxfp8-quantized",
    codes: WEIGHT,
    type: "e4m3",
    scale: E8M0,
    kinds: ["group"],
    group: 32,
    formats: ["mxfp8-quantized"],
    ...CT,
  },
  "ct-int8": {
    summary: "compressed-tensors int-quantized",
    codes: { suffix: ".weight", dtypes: ["I8"] },
    type: "int8",
    scale: { suffix: SCALE, dtypes: WIDE },
    kinds: ["row", "whole", "group"],
    formats: ["int-quantized", "naive-quantized"],
    ...CT,
  },
  "ct-int4": { summary: "compressed-tensors pack-quantized, 4 bits", type: "int4", ...CT_WORDS },
  "ct-int8-packed": { summary: "compressed-tensors pack-quantized, 8 bits", type: "int8", ...CT_WORDS },
  "ct-int2": { summary: "compressed-tensors pack-quantized, 2 bits", type: "int2", ...CT_WORDS },
  "ct-int3": { summary: "compressed-tensors pack-quantized, 3 bits", type: "int3", ...CT_WORDS },
  "ct-int5": { summary: "compressed-tensors pack-quantized, 5 bits", type: "int5", ...CT_WORDS },
  "ct-int6": { summary: "compressed-tensors pack-quantized, 6 bits", type: "int6", ...CT_WORDS },
  "ct-int7": { summary: "compressed-tensors pack-quantized, 7 bits", type: "int7", ...CT_WORDS },
  "ct-int1": { summary: "compressed-tensors pack-quantized, 1 bit", type: "int1", ...CT_WORDS },
  "modelopt-fp8": {
    summary: "ModelOpt FP8",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: SCALE, dtypes: ["F32"] },
    kinds: ["whole", "row", "tile"],
    block: [128, 128],
    reducedScales: true,
    formats: ["FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "fp8_pb_wo", "MIXED_PRECISION"],
    ...MODELOPT,
  },
  "modelopt-int8": {
    summary: "ModelOpt INT8",
    codes: { suffix: ".weight", dtypes: ["I8"] },
    type: "int8",
    scale: { suffix: SCALE, dtypes: ["F32"] },
    kinds: ["row"],
    reducedScales: true,
    formats: ["W8A16", "W8A8_SQ_PER_CHANNEL", "MIXED_PRECISION"],
    ...MODELOPT,
  },
  "modelopt-nvfp4": {
    summary: "ModelOpt NVFP4",
    group: 16,
    formats: ["NVFP4", "NVFP4_AWQ", "W4A16_NVFP4", "MIXED_PRECISION"],
    ...MODELOPT_NVFP4,
    ...MODELOPT,
  },
  "modelopt-w4a8-nvfp4": {
    summary: "ModelOpt W4A8_NVFP4_FP8, NVFP4 with groups of 32",
    group: 32,
    formats: ["W4A8_NVFP4_FP8", "MIXED_PRECISION"],
    ...MODELOPT_NVFP4,
    ...MODELOPT,
  },
  "modelopt-int4": {
    summary: "ModelOpt INT4 AWQ, two rows in a byte",
    codes: { suffix: ".weight", dtypes: ["U8"], packing: "rows" },
    type: "int4",
    scale: { suffix: SCALE, dtypes: WIDE },
    kinds: ["group"],
    factors: ".pre_quant_scale",
    formats: ["W4A16_AWQ", "W4A8_AWQ", "MIXED_PRECISION"],
    ...MODELOPT,
    others: [...MODELOPT.others, ".weight_scale_2"],
  },
  "modelopt-mxfp8": {
    summary: "ModelOpt MXFP8",
    codes: WEIGHT,
    type: "e4m3",
    scale: E8M0,
    kinds: ["group"],
    group: 32,
    formats: ["MXFP8", "MIXED_PRECISION"],
    ...MODELOPT,
  },
  "modelopt-mxfp4": {
    summary: "ModelOpt MXFP4",
    codes: FOUR,
    type: "e2m1",
    scale: E8M0,
    kinds: ["group"],
    group: 32,
    formats: ["MXFP4", "mxfp4", "W4A8_MXFP4_FP8", "MIXED_PRECISION"],
    ...MODELOPT,
  },
  "block-fp8": {
    summary: "FP8 with weight_scale_inv, which multiplies in spite of its name",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: ".weight_scale_inv", dtypes: ["F32", "BF16", "F8_E8M0"] },
    kinds: ["tile"],
    block: [128, 128],
    methods: ["fp8"],
    others: [".input_scale", ".activation_scale"],
    source: "DeepSeek V3, Qwen3, transformers 5.23",
  },
  "scalar-fp8": {
    summary: "FP8 with one weight_scale, quant_method fp8",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: SCALE, dtypes: WIDE },
    kinds: ["whole", "row"],
    methods: ["fp8"],
    others: [".input_scale"],
    source: "AutoFP8, vLLM's quant_method fp8",
  },
  "deepseek-v4-fp8": {
    summary: "FP8 with a power of two for a block",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: ".scale", dtypes: ["F8_E8M0", "F32"] },
    kinds: ["tile"],
    block: [128, 128],
    methods: ["fp8"],
    source: "DeepSeek V4",
  },
  "deepseek-v4-fp4": {
    summary: "experts in E2M1, two codes in a byte",
    codes: { suffix: ".weight", dtypes: ["I8"] },
    type: "e2m1",
    scale: { suffix: ".scale", dtypes: ["F8_E8M0"] },
    kinds: ["group"],
    group: 32,
    methods: ["fp8"],
    source: "DeepSeek V4",
  },
  "gpt-oss": {
    summary: "MXFP4 experts as blocks of 16 bytes",
    codes: { suffix: "_blocks", dtypes: ["U8"] },
    type: "e2m1",
    scale: { suffix: "_scales", dtypes: ["U8"] },
    kinds: ["group"],
    group: 32,
    transposedWide: true,
    methods: ["mxfp4"],
    source: "gpt-oss, transformers 5.23",
  },
  "fbgemm-fp8": {
    summary: "FP8 with a scale for each row",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: SCALE, dtypes: ["F32"] },
    kinds: ["row"],
    methods: ["fbgemm_fp8"],
    others: [".input_scale_ub"],
    source: "Llama 3.1, fbgemm-gpu-genai 1.9.0",
  },
  "fbgemm-experts": {
    summary: "FP8 experts with a scale for each output column",
    codes: { suffix: "", dtypes: ["F8_E4M3"] },
    type: "e4m3",
    scale: { suffix: "_scale", dtypes: ["F32"] },
    kinds: ["column"],
    methods: ["fbgemm_fp8"],
    source: "Llama 4, transformers 5.23",
  },
  "quark-mxfp4": {
    summary: "Quark MXFP4",
    codes: FOUR,
    type: "e2m1",
    scale: E8M0,
    kinds: ["group"],
    group: 32,
    ...QUARK,
  },
  "quark-nvfp4": {
    summary: "Quark NVFP4",
    codes: FOUR,
    type: "e2m1",
    scale: { suffix: SCALE, dtypes: ["F8_E4M3"] },
    kinds: ["group"],
    group: 16,
    global: { suffix: ".weight_scale_2", dtypes: ["F32"], role: "multiplier", fused: true },
    ...QUARK,
  },
  "quark-fp8": {
    summary: "Quark FP8",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: SCALE, dtypes: WIDE },
    kinds: ["whole", "row"],
    reducedScales: true,
    ...QUARK,
  },
  "mlx-mxfp4": {
    summary: "MLX mxfp4",
    codes: WORDS,
    type: "e2m1",
    scale: MLX_SCALES,
    kinds: ["group"],
    group: 32,
    formats: ["mxfp4"],
    ...MLX,
  },
  "mlx-nvfp4": {
    summary: "MLX nvfp4, whose scales are bytes of e4m3",
    codes: WORDS,
    type: "e2m1",
    scale: { ...MLX_SCALES, values: E4M3_BYTES },
    kinds: ["group"],
    group: 16,
    formats: ["nvfp4"],
    ...MLX,
  },
  "mlx-mxfp8": {
    summary: "MLX mxfp8",
    codes: WORDS,
    type: "e4m3",
    scale: MLX_SCALES,
    kinds: ["group"],
    group: 32,
    formats: ["mxfp8"],
    ...MLX,
  },
  "vllm-mxfp4": {
    summary: "MXFP4 experts, fused as vLLM has them",
    codes: { suffix: FUSED, dtypes: ["U8"] },
    type: "e2m1",
    scale: { suffix: `${FUSED}_scale`, dtypes: ["U8", "F8_E8M0"] },
    kinds: ["group"],
    group: 32,
    ...VLLM,
  },
  "vllm-fp8-block": {
    summary: "FP8 experts with scales of blocks, fused as vLLM has them",
    codes: { suffix: FUSED, dtypes: ["F8_E4M3"] },
    type: "e4m3",
    scale: { suffix: `${FUSED}_scale_inv`, dtypes: ["F32", "BF16"] },
    kinds: ["tile"],
    block: [128, 128],
    others: ["_input_scale"],
    ...VLLM,
  },
  "vllm-fp8-channel": {
    summary: "FP8 experts with scales of rows, fused as vLLM has them",
    codes: { suffix: FUSED, dtypes: ["F8_E4M3"] },
    type: "e4m3",
    scale: { suffix: `${FUSED}_scale`, dtypes: ["F32", "BF16"] },
    kinds: ["row"],
    others: ["_input_scale"],
    ...VLLM,
  },
  "comfy-fp8": {
    summary: "ComfyUI FP8 with scale_weight",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: ".scale_weight", dtypes: WIDE },
    kinds: ["whole"],
    methods: [],
    others: [".scale_input"],
    source: "ComfyUI, comfy/ops.py: scaled_fp8",
  },
  "comfy-quant-fp8": {
    summary: "ComfyUI FP8 with comfy_quant",
    codes: WEIGHT,
    type: "e4m3",
    scale: { suffix: SCALE, dtypes: WIDE },
    kinds: ["whole"],
    ...COMFY_MARKED,
  },
  "comfy-mxfp8": {
    summary: "ComfyUI MXFP8 with comfy_quant, scales swizzled",
    codes: WEIGHT,
    type: "e4m3",
    scale: E8M0,
    kinds: ["group"],
    group: 32,
    swizzles: true,
    ...COMFY_MARKED,
  },
  "comfy-nvfp4": {
    summary: "ComfyUI NVFP4 with comfy_quant, the even column in the high bits, scales swizzled",
    codes: { suffix: ".weight", dtypes: ["U8"], packing: "high-first" },
    type: "e2m1",
    scale: { suffix: SCALE, dtypes: ["F8_E4M3", "U8"], values: E4M3_BYTES },
    kinds: ["group"],
    group: 16,
    global: { suffix: ".weight_scale_2", dtypes: ["F32"], role: "multiplier" },
    swizzles: true,
    ...COMFY_MARKED,
  },
  "torchao-nvfp4": {
    summary: "torchao NVFP4Tensor",
    codes: { suffix: QDATA, dtypes: ["U8"] },
    type: "e2m1",
    scale: { suffix: AO_SCALE, dtypes: ["F8_E4M3"] },
    kinds: ["group"],
    group: 16,
    global: { suffix: "._weight_per_tensor_scale", dtypes: ["F32"], role: "multiplier" },
    others: ["._weight_act_per_tensor_scale"],
    ...TORCHAO,
  },
  "torchao-nvfp4-single": {
    summary: "torchao NVFP4Tensor without a scale of the tensor",
    lesserOf: "torchao-nvfp4",
    codes: { suffix: QDATA, dtypes: ["U8"] },
    type: "e2m1",
    scale: { suffix: AO_SCALE, dtypes: ["F8_E4M3"] },
    kinds: ["group"],
    group: 16,
    ...TORCHAO,
  },
  "torchao-mxfp4": {
    summary: "torchao MXTensor, MXFP4",
    codes: { suffix: QDATA, dtypes: ["U8"] },
    type: "e2m1",
    scale: { suffix: AO_SCALE, dtypes: ["F8_E8M0"] },
    kinds: ["group"],
    group: 32,
    ...TORCHAO,
  },
  "torchao-mxfp8": {
    summary: "torchao MXTensor, MXFP8",
    codes: { suffix: QDATA, dtypes: ["F8_E4M3"] },
    type: "e4m3",
    scale: { suffix: AO_SCALE, dtypes: ["F8_E8M0"] },
    kinds: ["group"],
    group: 32,
    ...TORCHAO,
  },
  "torchao-fp8": {
    summary: "torchao Float8Tensor",
    codes: { suffix: QDATA, dtypes: ["F8_E4M3"] },
    type: "e4m3",
    scale: { suffix: AO_SCALE, dtypes: WIDE },
    kinds: ["whole", "row", "tile"],
    block: [128, 128],
    ...TORCHAO,
  },
  "torchao-int8": {
    summary: "torchao Int8Tensor",
    codes: { suffix: QDATA, dtypes: ["I8"] },
    type: "int8",
    scale: { suffix: AO_SCALE, dtypes: WIDE },
    kinds: ["row", "whole", "group"],
    zeros: { suffix: "._weight_zero_point", dtypes: ["I8"] },
    factors: "._weight_act_pre_scale",
    others: [
      "._weight_zero_point",
      "._weight_act_pre_scale",
      "._weight_act_quant_scale",
      "._weight_act_quant_zero_point",
    ],
    ...TORCHAO,
  },
  "gguf-nvfp4": {
    summary: "GGUF's NVFP4",
    codes: { suffix: ".weight", dtypes: ["U8"] },
    type: "e2m1x2",
    scale: { suffix: `.weight${BLOCK_SCALES}`, dtypes: ["F8_E4M3"], values: UE4M3_HALVES },
    group: 16,
    global: { suffix: ".scale", dtypes: ["F32"], role: "multiplier", optional: true, stacked: true },
    others: [".input_scale"],
    ...GGML,
  },
  "gguf-nvfp4-bare": {
    summary: "GGUF's NVFP4, of a tensor that is not called a weight",
    codes: { suffix: "", dtypes: ["U8"] },
    type: "e2m1x2",
    scale: { suffix: BLOCK_SCALES, dtypes: ["F8_E4M3"], values: UE4M3_HALVES },
    group: 16,
    ...GGML,
  },
  "gguf-mxfp4": {
    summary: "GGUF's MXFP4",
    codes: { suffix: "", dtypes: ["U8"] },
    type: "e2m1x2",
    scale: { suffix: BLOCK_SCALES, dtypes: ["F8_E8M0"], values: E8M0_HALVES },
    group: 32,
    ...GGML,
  },
} as const satisfies Record<string, Convention>;

/** The name of a convention. */
export type ConventionName = keyof typeof CONVENTIONS;

/** The names of the conventions, in table order. */
export const CONVENTION_NAMES = Object.keys(CONVENTIONS) as readonly ConventionName[];

/** The row of a convention. */
export function conventionOf(name: ConventionName): Convention {
  return CONVENTIONS[name];
}

/** The summary and the source of a convention. */
export interface ConventionSummary {
  /** A short description of the convention. */
  readonly summary: string;
  /** The package or the published model that the convention follows. */
  readonly source: string;
}

/**
 * Every convention of checkpoints by its name. Among conventions with the same tensor names, the likelier convention comes first.
 */
export const CONVENTION_SUMMARIES: Readonly<Record<ConventionName, ConventionSummary>> = Object.freeze(
  Object.fromEntries(
    CONVENTION_NAMES.map((name) => {
      const { summary, source } = CONVENTIONS[name];
      return [name, Object.freeze({ summary, source })];
    }),
  ) as Record<ConventionName, ConventionSummary>,
);
