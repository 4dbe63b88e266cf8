/** Reads the quantization that a configuration claims. */
import { FileError } from "../../../errors.js";
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { JsonError, parseJson } from "../../../io/json/json-read.js";
import { countIn, isText, listOf, pairIn } from "./json-fields.js";
import { resolver } from "./resolver.js";
import type { Resolved } from "./scheme.js";

/** The quantization that a configuration claims for the entire checkpoint. */
export interface ConfigClaim {
  /** The configuration file. */
  readonly path: string;
  /** The `quant_method`; empty if the configuration has none. */
  readonly method: string;
  /** All formats of compressed-tensors, or ModelOpt's algorithm. Empty if the method alone determines the format. */
  readonly formats: readonly string[];
  /** The rows and columns of a block. Absent unless the configuration has exactly one such setting. */
  readonly block?: readonly [number, number];
  /** The number of elements of a group. Absent unless the configuration has exactly one such setting. */
  readonly group?: number;
}

/** The quantization that a configuration claims, for the checkpoint and for single modules. */
export interface Claim extends ConfigClaim {
  /** The claim for the weights of one module. */
  readonly resolve: (module: string) => Resolved;
  /** Whether the configuration claims all linear layers except the excluded ones. */
  readonly allLinear: boolean;
  /** Whether the KV cache is quantized with recorded scales. */
  readonly cache: boolean;
  /** The JSON of the configuration. */
  readonly json: JsonObject;
}

/** Parses a JSON object. Throws `FileError` if the string is not a JSON object. */
export function parseObject(path: string, text: string): JsonObject {
  try {
    const json = parseJson(text);
    if (isObject(json)) return json;
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new FileError(`${path}: ${error.message}`, { cause: error });
  }
  throw new FileError(`${path}: must be a JSON object`);
}

/** Returns a config.json without its quantization claims. */
export function withoutClaim(model: JsonObject): JsonObject {
  const {
    quantization_config: _,
    compression_config: __,
    quantization,
    text_config: text,
    ...otherFields
  } = model;
  return {
    ...otherFields,
    ...(quantization === undefined || mlxClaim(model) ? {} : { quantization }),
    ...(text === undefined ? {} : { text_config: isObject(text) ? withoutClaim(text) : text }),
  };
}

/** MLX's quantization settings in a config.json; undefined if there are none. */
function mlxClaim({ quantization }: JsonObject): JsonObject | undefined {
  const isMlx =
    isObject(quantization) &&
    quantization.group_size !== undefined &&
    quantization.quant_method === undefined;
  return isMlx ? quantization : undefined;
}

/** The claim of a config.json or, without a claim there, of an hf_quant_config.json. `paths` are the paths of both files. */
export function claimIn(
  paths: readonly [string, string],
  model: JsonObject | undefined,
  modelopt: JsonObject | undefined,
): Claim | undefined {
  const mlx = model && mlxClaim(model);
  if (mlx) return claimOf(paths[0], mlx, "mlx");
  const config = model?.quantization_config ?? inner(model);
  if (isObject(config)) return claimOf(paths[0], config, methodOf(config));
  return isObject(modelopt?.quantization) ? claimOf(paths[1], modelopt.quantization, "modelopt") : undefined;
}

/** The quantization object under `compression_config`, or in the configuration of the language model. */
function inner(model: JsonObject | undefined): unknown {
  const text = model?.text_config;
  return model?.compression_config ?? (isObject(text) ? text.quantization_config : undefined);
}

/** The claim of a configuration's quantization object. */
function claimOf(path: string, json: JsonObject, method: string): Claim {
  const groups = isObject(json.config_groups) ? Object.values(json.config_groups).filter(isObject) : [];
  const weights = groups.map(({ weights: settings }) => settings).filter(isObject);
  const block = [json.weight_block_size, ...weights.map((settings) => settings.block_structure)]
    .map(pairIn)
    .find((pair) => pair !== undefined);
  const group = [json.group_size, ...weights.map((settings) => settings.group_size)]
    .map(countIn)
    .find((count) => count !== undefined);
  const targets = groups.flatMap((each) => listOf(each.targets));
  return {
    path,
    method,
    formats: formatsOf(json, groups),
    ...(block ? { block } : {}),
    ...(group !== undefined && weights.length <= 1 ? { group } : {}),
    resolve: resolver(json, method),
    allLinear: targets.every((target) => target === "Linear") && !isObject(json.quantized_layers),
    cache: isObject(json.kv_cache_scheme)
      ? json.kv_cache_scheme.dynamic !== true
      : isText(json.kv_cache_quant_algo) || isText(json.kv_cache_scheme),
    json,
  };
}

function methodOf(json: JsonObject): string {
  const method = json.quant_method;
  if (!isText(method)) return isText(json.quant_algo) ? "modelopt" : "";
  return method.startsWith("modelopt") ? "modelopt" : method;
}

function formatsOf(json: JsonObject, groups: readonly JsonObject[]): readonly string[] {
  const names = [json.format, json.quant_algo, json.mode, ...groups.map(({ format }) => format)].filter(
    isText,
  );
  return [...new Set(names)].filter((format) => format !== "mixed-precision");
}

/** The claim without the settings of single modules. */
export function summaryOfClaim({ path, method, formats, block, group }: Claim): ConfigClaim {
  return { path, method, formats, ...(block ? { block } : {}), ...(group === undefined ? {} : { group }) };
}
