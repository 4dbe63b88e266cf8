/** The configuration of a converted checkpoint. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { WIDE_DTYPES, type WideDType } from "../../../tensor/shape.js";
import { GGUF_ARCHITECTURES } from "../../gguf/architectures.js";
import { ggufConfig } from "../../gguf/model-config.js";
import { withoutClaim } from "../../stored/config/claim.js";
import type { CheckpointFiles } from "../../stored/files.js";
import { readJson } from "../../stored/folder.js";
import { type ConversionPlan, isGgufTarget } from "../plan/steps.js";
import { modeloptConfig, quantizationConfig, TORCH_DTYPES } from "./quantization-config.js";

/** The key under which each method lists unquantized modules. */
const IGNORED = ["ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"] as const;
const DEFAULT_KEY: Readonly<Record<string, (typeof IGNORED)[number]>> = {
  "compressed-tensors": "ignore",
  modelopt: "exclude_modules",
};

/** The dtype of the model according to its configuration; bf16 if the configuration names no dtype. */
export function modelDType(config: JsonObject | undefined): WideDType {
  const name = config?.torch_dtype ?? config?.dtype;
  return WIDE_DTYPES.find((dtype) => TORCH_DTYPES[dtype] === name) ?? "bf16";
}

/**
 * Returns the config.json in the folder of the input or, without this file, a translation of GGUF metadata. Undefined if there is
 * neither, if the architecture is unknown, and for GGUF metadata if the output is also a GGUF file.
 */
export async function inputConfig(
  { folder, gguf, tensors }: CheckpointFiles,
  { target }: ConversionPlan,
): Promise<JsonObject | undefined> {
  const config = await readJson(folder, "config.json");
  if (config || !gguf || isGgufTarget(target)) return config;
  const { metadata } = gguf;
  const architecture = GGUF_ARCHITECTURES.find(({ name }) => name === metadata["general.architecture"]);
  return architecture && ggufConfig(architecture, metadata, (name) => tensors.get(name)?.entry.shape);
}

/**
 * The config.json of the output. After a quantization, it declares the new quantization. After a dequantization of all weights,
 * it declares no quantization. After a dequantization of some weights, it lists these weights as unquantized.
 */
export function convertedConfig(config: JsonObject, plan: ConversionPlan): JsonObject {
  const otherFields = withoutClaim(config);
  const { quantization_config: quantization } = config;
  const { target, kept, ignored } = plan;
  if (target.wide === undefined) {
    const declared = target.dialectTarget && quantizationConfig(target.dialectTarget.declaration, ignored);
    return declared ? { ...otherFields, quantization_config: declared } : otherFields;
  }
  const key = "torch_dtype" in config ? "torch_dtype" : "dtype";
  if (kept.length === 0) return { ...otherFields, [key]: TORCH_DTYPES[target.wide] };
  if (!isObject(quantization)) return config;
  return { ...config, quantization_config: withUnquantized(quantization, plan, quantization.quant_method) };
}

/** The hf_quant_config.json of the output, derived from the file of the input. Undefined if the output needs no such file. */
export function convertedModelopt(
  config: JsonObject | undefined,
  plan: ConversionPlan,
): JsonObject | undefined {
  const { target, ignored, kept } = plan;
  if (target.wide === undefined)
    return target.dialectTarget && modeloptConfig(target.dialectTarget.declaration, ignored);
  if (kept.length === 0 || !config) return undefined;
  const { quantization } = config;
  return isObject(quantization)
    ? { ...config, quantization: withUnquantized(quantization, plan, "modelopt") }
    : config;
}

/** Returns a quantization configuration with the converted modules added to its list of unquantized modules. */
function withUnquantized(
  quantization: JsonObject,
  { converted }: ConversionPlan,
  method: unknown,
): JsonObject {
  const key =
    IGNORED.find((each) => Array.isArray(quantization[each])) ??
    DEFAULT_KEY[String(method)] ??
    "modules_to_not_convert";
  const before: readonly unknown[] = Array.isArray(quantization[key]) ? quantization[key] : [];
  return {
    ...quantization,
    [key]: [...before, ...[...converted.keys()].map((name) => name.replace(/\.weight$/, ""))],
  };
}
