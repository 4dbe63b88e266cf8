/** Compares several declarations of the same quantization. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { ignoredIn } from "../../stored/config/resolver.js";
import { type Finding, finding } from "../findings.js";

type Paths = readonly [model: string, modelopt: string];

/** A field and its values in two declarations; undefined if a declaration lacks it. */
type Pair = readonly [what: string, first: unknown, second: unknown];

const jsonOf = (value: unknown): string => JSON.stringify(value) ?? "nothing";

/** Returns one finding about all pairs that differ. */
function findDifferences(
  path: string,
  locations: readonly [string, string],
  pairs: readonly Pair[],
): Finding[] {
  const differingPairs = pairs.filter(
    ([, first, second]) => first !== undefined && second !== undefined && jsonOf(first) !== jsonOf(second),
  );
  if (differingPairs.length === 0) return [];
  const differences = differingPairs.map(
    ([field, first, second]) =>
      `${field} is ${jsonOf(first)} in ${locations[0]} and ${jsonOf(second)} in ${locations[1]}`,
  );
  return [finding("config-disagree", path, differences.join("; "))];
}

/** Findings about disagreements within config.json, and between config.json and hf_quant_config.json. */
export function judgeDisagreements(
  paths: Paths,
  model: JsonObject | undefined,
  modelopt: JsonObject | undefined,
): Finding[] {
  const config = model?.quantization_config;
  const modeloptConfig = modelopt?.quantization;
  return [
    ...(isObject(config) ? formats(paths[0], config) : []),
    ...(isObject(config) && isObject(modeloptConfig) ? files(paths, config, modeloptConfig) : []),
    ...(model && isObject(config) ? sameFile(paths[0], model, config) : []),
  ];
}

/** Compares the format of the configuration with the formats of its groups. "mixed-precision" allows any format. */
function formats(path: string, json: JsonObject): Finding[] {
  if (!isObject(json.config_groups) || json.format === "mixed-precision") return [];
  return Object.entries(json.config_groups).flatMap(([name, group]) =>
    isObject(group) && typeof group.format === "string" && typeof json.format === "string"
      ? findDifferences(
          path,
          ["quantization_config", `config_groups.${name}`],
          [["format", json.format, group.format]],
        )
      : [],
  );
}

const isModelopt = (method: unknown): boolean =>
  method === undefined || (typeof method === "string" && method.startsWith("modelopt"));

function files([path, other]: Paths, config: JsonObject, modeloptConfig: JsonObject): Finding[] {
  const names: readonly [string, string] = ["config.json", "hf_quant_config.json"];
  if (!isModelopt(config.quant_method))
    return findDifferences(other, names, [["quant_method", config.quant_method, "modelopt"]]);
  const groups = isObject(config.config_groups) ? Object.values(config.config_groups).filter(isObject) : [];
  const sizes = new Set(
    groups.map(({ weights }) => (isObject(weights) ? weights.group_size : undefined)).filter(Boolean),
  );
  const [size] = sizes;
  return findDifferences(path, names, [
    ["quant_algo", config.quant_algo, modeloptConfig.quant_algo],
    ["group_size", sizes.size === 1 ? size : undefined, modeloptConfig.group_size ?? undefined],
    [
      "the list of unquantized modules",
      sortedUnique(ignoredIn(config)),
      sortedUnique(ignoredIn(modeloptConfig)),
    ],
    ["the quantization of the cache", cacheOf(config), cacheOf(modeloptConfig)],
    ["quantized_layers", byName(config.quantized_layers), byName(modeloptConfig.quantized_layers)],
  ]);
}

const sortedUnique = (names: readonly string[]): readonly string[] => [...new Set(names)].toSorted();

const byName = (layers: unknown): unknown =>
  isObject(layers)
    ? Object.entries(layers)
        .map(([name, layer]) => [name, isObject(layer) ? layer.quant_algo : layer])
        .toSorted()
    : undefined;

/** The quantization of the KV cache; "none" if the cache is not quantized. */
function cacheOf({ kv_cache_scheme: scheme, kv_cache_quant_algo: algorithm }: JsonObject): string {
  if (isObject(scheme)) return scheme.num_bits === 8 ? "FP8" : `${String(scheme.num_bits)} bits`;
  const cacheSetting = scheme ?? algorithm;
  return typeof cacheSetting === "string" ? cacheSetting.toUpperCase() : "none";
}

/**
 * Compares the model's `quantization_config` with the `quantization_config` in `text_config`, and with MLX's copy under
 * `quantization`.
 */
function sameFile(path: string, model: JsonObject, config: JsonObject): Finding[] {
  const { text_config: text, quantization: mlx } = model;
  const inner = isObject(text) ? text.quantization_config : undefined;
  const compareWith = (name: string, otherConfig: unknown, keys: readonly string[]): Finding[] =>
    isObject(otherConfig)
      ? findDifferences(
          path,
          ["quantization_config", name],
          keys.map((key) => [key, config[key], otherConfig[key]] as const),
        )
      : [];
  return [
    ...compareWith("text_config.quantization_config", inner, [
      "quant_method",
      "format",
      "quant_algo",
      "weight_block_size",
    ]),
    ...compareWith("quantization", mlx, ["bits", "group_size", "mode"]),
  ];
}
