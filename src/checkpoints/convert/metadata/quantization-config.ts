/** Writes the metadata and configurations of quantized weights for each library. */
import type { JsonObject, Metadata } from "../../../io/header/header.js";
import type { WideDType } from "../../../tensor/shape.js";
import { matricesOf } from "../../stored/weight.js";
import type { Source } from "../../values/source.js";
import type { OutputTensors } from "../targets/tensors.js";
import type { Declaration } from "./declarations.js";

/** PyTorch's names of dtypes, which configurations and metadata use. */
export const TORCH_DTYPES = { bf16: "bfloat16", f16: "float16", f32: "float32" } as const;
/** The library versions whose files the targets match. */
const VERSIONS = { compressedTensors: "0.20.0", modelopt: "0.47.0" } as const;
const BLOCK = [128, 128] as const;

/**
 * The metadata of a file for one weight. `dtype` is the type of the weight before quantization. Empty if the library reads no
 * metadata.
 */
export function weightMetadata(
  declaration: Declaration,
  { name, shape }: Source,
  { global }: OutputTensors,
  dtype: WideDType,
): Metadata {
  if (declaration.method !== "torchao") return {};
  const { type, data, source, block } = declaration.subclass;
  const [, rows, columns] = matricesOf(shape);
  const partNames = [...(global ? ["per_tensor_scale"] : []), "qdata", "scale"];
  const all = {
    ...(block ? { block_size: [block === "row" ? 1 : rows, columns] } : {}),
    ...data,
    [source]: { _type: "torch.dtype", _data: TORCH_DTYPES[dtype] },
  };
  return { [name]: JSON.stringify({ _type: type, _data: all, _tensor_data_names: partNames }) };
}

/** The metadata of a file: the weights' entries, and torchao's entries for the unquantized tensors `plainNames`. */
export function fileMetadata(
  declaration: Declaration,
  weights: Metadata,
  plainNames: readonly string[],
): Metadata | undefined {
  if (declaration.method !== "torchao") return undefined;
  const plainEntries = plainNames.map((name) => [name, JSON.stringify({ _type: "Tensor" })] as const);
  const names = [...plainNames, ...Object.keys(weights)];
  return { ...weights, ...Object.fromEntries(plainEntries), tensor_names: JSON.stringify(names) };
}

/** The `quantization_config` of config.json; undefined if the library has none. `ignored`: the modules that are not quantized. */
export function quantizationConfig(
  declaration: Declaration,
  ignored: readonly string[],
): JsonObject | undefined {
  switch (declaration.method) {
    case "compressed-tensors": {
      const { method, format, weights } = declaration;
      const group = {
        format,
        input_activations: null,
        output_activations: null,
        targets: ["Linear"],
        weights,
      };
      return {
        config_groups: { group_0: group },
        format,
        global_compression_ratio: null,
        ignore: ignored,
        kv_cache_scheme: null,
        moe_sparsity_config: null,
        quant_method: method,
        quantization_status: "compressed",
        sparsity_config: {},
        transform_config: {},
        version: VERSIONS.compressedTensors,
      };
    }
    case "modelopt": {
      const { method, algorithm, weights } = declaration;
      return {
        ...(weights ? { config_groups: { group_0: { weights, targets: ["Linear"] } } } : {}),
        ignore: ignored,
        quant_algo: algorithm,
        producer: { name: method, version: VERSIONS.modelopt },
        quant_method: method,
      };
    }
    case "fp8":
      return {
        activation_scheme: "dynamic",
        modules_to_not_convert: ignored,
        quant_method: declaration.method,
        ...(declaration.scaleFormat === undefined ? {} : { scale_fmt: declaration.scaleFormat }),
        weight_block_size: BLOCK,
      };
    case "fbgemm":
      return {
        activation_scale_ub: declaration.upperBound,
        modules_to_not_convert: ignored,
        quant_method: declaration.quantMethod,
      };
    case "experts":
      return { modules_to_not_convert: ignored, quant_method: declaration.quantMethod };
    case "gguf":
      return undefined;
    case "torchao":
      return {
        quant_method: declaration.method,
        quant_type: { default: declaration.type },
        modules_to_not_convert: ignored,
        include_input_output_embeddings: false,
        untie_embedding_weights: false,
      };
  }
}

/** The hf_quant_config.json of ModelOpt; undefined for other libraries. */
export function modeloptConfig(declaration: Declaration, ignored: readonly string[]): JsonObject | undefined {
  if (declaration.method !== "modelopt") return undefined;
  const group = declaration.weights?.group_size;
  return {
    producer: { name: declaration.method, version: VERSIONS.modelopt },
    quantization: {
      quant_algo: declaration.algorithm,
      kv_cache_quant_algo: null,
      ...(group === undefined ? {} : { group_size: group }),
      exclude_modules: ignored,
    },
  };
}
