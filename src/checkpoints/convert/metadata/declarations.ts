/** What configurations announce of quantizations, as each library writes it. */
import type { JsonObject } from "../../../io/header/header.js";

/** What the configuration says of the quantization. A convention without one is announced by the metadata of the file alone. */
export type Declaration =
  | { readonly method: "compressed-tensors"; readonly format: string; readonly weights: JsonObject }
  | { readonly method: "modelopt"; readonly algorithm: string; readonly weights?: JsonObject }
  | { readonly method: "fp8"; readonly scaleFormat?: string }
  | { readonly method: "fbgemm"; readonly quantMethod: string; readonly upperBound: number }
  | { readonly method: "experts"; readonly quantMethod: string }
  | { readonly method: "torchao"; readonly type: JsonObject; readonly subclass: TorchaoSubclass }
  | { readonly method: "gguf"; readonly fileType: number };

/** The class of torchao that a weight becomes, and its fields beside those of the tensor. */
export interface TorchaoSubclass {
  readonly type: string;
  readonly data: JsonObject;
  /** The name of the field that has the type before quantization. */
  readonly source: string;
  /** The rows and columns that share a scale, where the class has both: those of the whole weight, or of one row. */
  readonly block?: "whole" | "row";
}

/** Of compressed-tensors. */
export const compressedTensors = (format: string, bits: number, weights: JsonObject): Declaration => ({
  method: "compressed-tensors",
  format,
  weights: { dynamic: false, group_size: null, num_bits: bits, symmetric: true, type: "float", ...weights },
});

/** Of its MX formats. */
export const compressedTensorsMx = (format: string, bits: number): Declaration =>
  compressedTensors(format, bits, { group_size: 32, scale_dtype: "torch.uint8", strategy: "group" });

/** Of ModelOpt. */
export const modelopt = (algorithm: string, bits: number, group?: number): Declaration => ({
  method: "modelopt",
  algorithm,
  weights: { dynamic: false, num_bits: bits, type: "float", ...(group ? { group_size: group } : {}) },
});

/** Of an algorithm of ModelOpt whose groups its exporter does not tell. */
export const modeloptWithoutGroups = (algorithm: string): Declaration => ({ method: "modelopt", algorithm });

/** A value of torchao with its type. */
export const torchaoValue = (type: string, data: unknown): JsonObject => ({ _type: type, _data: data });
export const E4M3 = torchaoValue("torch.dtype", "float8_e4m3fn");
export const E2M1 = torchaoValue("torch.dtype", "float4_e2m1fn_x2");
const EMULATED = torchaoValue("KernelPreference", "EMULATED");

/** Of the MX formats of torchao. */
export const torchaoMx = (element: JsonObject, mode: string): Declaration => {
  const activations = {
    elem_dtype: element,
    block_size: 32,
    scaling_mode: torchaoValue("ScaleCalculationMode", mode),
    kernel_preference: EMULATED,
    is_swizzled_scales: true,
  };
  const own = { elem_dtype: element, block_size: 32, kernel_preference: EMULATED };
  return {
    method: "torchao",
    type: {
      _type: "MXDynamicActivationMXWeightConfig",
      _version: 1,
      _data: {
        block_size: 32,
        activation_dtype: element,
        weight_dtype: element,
        kernel_preference: EMULATED,
        scaling_mode: torchaoValue("ScaleCalculationMode", mode),
      },
    },
    subclass: {
      type: "MXTensor",
      data: {
        ...own,
        act_quant_kwargs: torchaoValue("QuantizeTensorToMXKwargs", activations),
        is_swizzled_scales: true,
      },
      source: "orig_dtype",
    },
  };
};

/** Of NVFP4 of torchao. */
export const torchaoNv = (twoLevel: boolean): Declaration => ({
  method: "torchao",
  type: {
    _type: "NVFP4WeightOnlyConfig",
    _version: 1,
    _data: { use_dynamic_per_tensor_scale: twoLevel },
  },
  subclass: {
    type: "NVFP4Tensor",
    data: { is_swizzled_scales: true, use_triton_kernel: false, act_quant_kwargs: null, block_size: 16 },
    source: "orig_dtype",
  },
});

/** Of FP8 of torchao. */
export const torchaoFp8 = (granularity: JsonObject, block: "whole" | "row"): Declaration => ({
  method: "torchao",
  type: {
    _type: "Float8WeightOnlyConfig",
    _version: 2,
    _data: { weight_dtype: E4M3, set_inductor_config: true, granularity: { _version: 1, ...granularity } },
  },
  subclass: {
    type: "Float8Tensor",
    data: {
      mm_config: null,
      act_quant_kwargs: null,
      kernel_preference: torchaoValue("KernelPreference", "AUTO"),
    },
    source: "dtype",
    block,
  },
});
