/** The quantization that a configuration claims. */
import { FileError } from "../../../errors.js";
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { JsonError, parseJson } from "../../../io/json/json-read.js";

/** The quantization that a configuration claims. */
export interface Claim {
  /** The file that claims it. */
  readonly path: string;
  readonly method: string;
  /** The formats of compressed-tensors, or ModelOpt's algorithm; empty if the method says enough. */
  readonly formats: readonly string[];
  /** The rows and columns of a block. */
  readonly block?: readonly [number, number];
  /** The number of elements of a group. */
  readonly group?: number;
  /** The strategy of the scales of weights, as compressed-tensors names it. */
  readonly strategy?: string;
  /** Patterns of the modules that are not quantized, as `matchesModule` reads them. */
  readonly ignored: readonly string[];
  /** Whether all linear layers are quantized, but for the ignored ones. */
  readonly allLinear: boolean;
  /** Whether the cache of keys and values is quantized with recorded scales. */
  readonly cache: boolean;
}

/** The object in the text of a JSON file. Throws `FileError` if it is anything else. */
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

/** The claim of a config.json, or of a hf_quant_config.json beside it. The paths are those of the two. */
export function claimIn(
  paths: readonly [string, string],
  model: JsonObject | undefined,
  modelopt: JsonObject | undefined,
): Claim | undefined {
  const within = model?.quantization_config ?? inner(model);
  if (isObject(within)) return claimOf(paths[0], within);
  return isObject(modelopt?.quantization)
    ? claimOf(paths[1], { ...modelopt.quantization, quant_method: "modelopt" })
    : undefined;
}

/** The claim of a model whose language part has its own configuration. */
function inner(model: JsonObject | undefined): unknown {
  const text = model?.text_config;
  return model?.compression_config ?? (isObject(text) ? text.quantization_config : undefined);
}

function claimOf(path: string, json: JsonObject): Claim {
  const weights = groupsOf(json);
  const sizes = [json.weight_block_size, ...weights.map(({ block_structure: size }) => size)].filter(isPair);
  const groups = [json.group_size, ...weights.map(({ group_size: size }) => size)].filter(isCount);
  const strategies = new Set(weights.map(({ strategy }) => strategy).filter(isText));
  const [block] = sizes;
  const [group] = groups;
  const [strategy] = strategies;
  return {
    path,
    method: methodOf(json),
    formats: formatsOf(json),
    ...(block ? { block } : {}),
    ...(group !== undefined && weights.length <= 1 ? { group } : {}),
    ...(strategy !== undefined && strategies.size === 1 ? { strategy } : {}),
    ignored: ["ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"].flatMap((key) =>
      listOf(json[key]).filter(isText),
    ),
    allLinear: targetsOf(json).every((target) => target === "Linear") && !isObject(json.quantized_layers),
    cache: isObject(json.kv_cache_scheme)
      ? json.kv_cache_scheme.dynamic !== true
      : isText(json.kv_cache_quant_algo),
  };
}

const isText = (value: unknown): value is string => typeof value === "string";
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;
const isPair = (value: unknown): value is readonly [number, number] =>
  Array.isArray(value) && value.length === 2 && value.every(isCount);
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function methodOf(json: JsonObject): string {
  const method = json.quant_method;
  if (!isText(method)) return isText(json.quant_algo) ? "modelopt" : "";
  return method.startsWith("modelopt") ? "modelopt" : method;
}

function formatsOf(json: JsonObject): readonly string[] {
  const groups = isObject(json.config_groups) ? Object.values(json.config_groups).filter(isObject) : [];
  const own = [json.format, json.quant_algo, ...groups.map(({ format }) => format)].filter(isText);
  return [...new Set(own)].filter((format) => format !== "mixed-precision");
}

/** What the groups of compressed-tensors and ModelOpt apply to. */
function targetsOf(json: JsonObject): readonly unknown[] {
  const groups = isObject(json.config_groups) ? Object.values(json.config_groups) : [];
  return groups.flatMap((group) => (isObject(group) ? listOf(group.targets) : []));
}

/** The settings of weights in the groups of compressed-tensors and ModelOpt. */
function groupsOf(json: JsonObject): readonly JsonObject[] {
  const groups = isObject(json.config_groups) ? Object.values(json.config_groups) : [];
  return groups.flatMap((group) => (isObject(group) && isObject(group.weights) ? [group.weights] : []));
}
