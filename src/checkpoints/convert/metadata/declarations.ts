/** The declarations of quantizations in configurations, in the form of each library. */
import type { JsonObject } from "../../../io/header/header.js";

/** The declaration of a quantization in config.json. `gguf` has no such declaration: the metadata of the file contain it. */
export type Declaration =
  | { readonly method: "compressed-tensors"; readonly format: string; readonly weights: JsonObject }
  | { readonly method: "modelopt"; readonly algorithm: string; readonly weights?: JsonObject }
  | { readonly method: "fp8"; readonly scaleFormat?: string }
  | { readonly method: "fbgemm"; readonly quantMethod: string; readonly upperBound: number }
  | { readonly method: "experts"; readonly quantMethod: string }
  | { readonly method: "torchao"; readonly type: JsonObject; readonly subclass: TorchaoSubclass }
  | { readonly method: "gguf"; readonly fileType: number };

/** The torchao class of a quantized weight, and the fields of the class that do not depend on the weight. */
export interface TorchaoSubclass {
  readonly type: string;
  readonly data: JsonObject;
  /** The name of the field for the type before quantization. */
  readonly source: string;
  /** The block whose size the class declares: the entire weight or one row. Absent if the class declares no block size. */
  readonly block?: "whole" | "row";
}

/** The declaration of a compressed-tensors format. */
export const compressedTensors = (format: string, bits: number, weights: JsonObject): Declaration => ({
  method: "compressed-tensors",
  format,
  weights: { dynamic: false, group_size: null, num_bits: bits, symmetric: true, type: "float", ...weights },
});

/** The declaration of an MX format of compressed-tensors. */
export const compressedTensorsMx = (format: string, bits: number): Declaration =>
  compressedTensors(format, bits, { group_size: 32, scale_dtype: "torch.uint8", strategy: "group" });

/** The declaration of a ModelOpt algorithm. */
export const modelopt = (algorithm: string, bits: number, group?: number): Declaration => ({
  method: "modelopt",
  algorithm,
  weights: { dynamic: false, num_bits: bits, type: "float", ...(group ? { group_size: group } : {}) },
});

/** As `modelopt`, for an algorithm whose group size ModelOpt does not write. */
export const modeloptWithoutGroups = (algorithm: string): Declaration => ({ method: "modelopt", algorithm });

/** A value in torchao's JSON, with its type. */
export const torchaoValue = (type: string, data: unknown): JsonObject => ({ _type: type, _data: data });
export const E4M3 = torchaoValue("torch.dtype", "float8_e4m3fn");
export const E2M1 = torchaoValue("torch.dtype", "float4_e2m1fn_x2");
const EMULATED = torchaoValue("KernelPreference", "EMULATED");

/** The declaration of an MX format of torchao. */
export const torchaoMx = (element: JsonObject, mode: string): Declaration => {
  const activations = {
    elem_dtype: element,
    block_size: 32,
    scaling_mode: torchaoValue("ScaleCalculationMode", mode),
    kernel_preference: EMULATED,
    is_swizzled_scales: true,
  };
  const weights = { elem_dtype: element, block_size: 32, kernel_preference: EMULATED };
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
        ...weights,
        act_quant_kwargs: torchaoValue("QuantizeTensorToMXKwargs", activations),
        is_swizzled_scales: true,
      },
      source: "orig_dtype",
    },
  };
};

/** The declaration of torchao's NVFP4. `twoLevel`: whether the weight has a scale per tensor. */
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

/** The declaration of torchao's FP8. */
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
