/** Compares the declarations of one quantization that stand in several places. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { ignoredIn } from "../../stored/config/scheme.js";
import { type Finding, finding } from "../findings.js";

type Paths = readonly [model: string, modelopt: string];

/** A fact as each of two declarations says it; undefined where one says nothing. */
type Pair = readonly [what: string, first: unknown, second: unknown];

const shown = (value: unknown): string => JSON.stringify(value) ?? "nothing";

/** The pairs that differ, as one finding. */
function differing(path: string, where: readonly [string, string], pairs: readonly Pair[]): Finding[] {
  const wrong = pairs.filter(
    ([, first, second]) => first !== undefined && second !== undefined && shown(first) !== shown(second),
  );
  if (wrong.length === 0) return [];
  const told = wrong.map(
    ([what, first, second]) =>
      `${what} is ${shown(first)} in ${where[0]} and ${shown(second)} in ${where[1]}`,
  );
  return [finding("config-disagree", path, told.join("; "))];
}

/** Findings about the declarations in config.json, and about those in hf_quant_config.json beside it. */
export function judgeDisagreements(
  paths: Paths,
  model: JsonObject | undefined,
  modelopt: JsonObject | undefined,
): Finding[] {
  const own = model?.quantization_config;
  const beside = modelopt?.quantization;
  return [
    ...(isObject(own) ? formats(paths[0], own) : []),
    ...(isObject(own) && isObject(beside) ? files(paths, own, beside) : []),
    ...(model && isObject(own) ? sameFile(paths[0], model, own) : []),
  ];
}

/** The format of a whole is that of each group, unless it says that they differ. */
function formats(path: string, json: JsonObject): Finding[] {
  if (!isObject(json.config_groups) || json.format === "mixed-precision") return [];
  return Object.entries(json.config_groups).flatMap(([name, group]) =>
    isObject(group) && typeof group.format === "string" && typeof json.format === "string"
      ? differing(
          path,
          ["quantization_config", `config_groups.${name}`],
          [["format", json.format, group.format]],
        )
      : [],
  );
}

const isModelopt = (method: unknown): boolean =>
  method === undefined || (typeof method === "string" && method.startsWith("modelopt"));

function files([path, other]: Paths, own: JsonObject, beside: JsonObject): Finding[] {
  const names: readonly [string, string] = ["config.json", "hf_quant_config.json"];
  if (!isModelopt(own.quant_method))
    return differing(other, names, [["quant_method", own.quant_method, "modelopt"]]);
  const groups = isObject(own.config_groups) ? Object.values(own.config_groups).filter(isObject) : [];
  const sizes = new Set(
    groups.map(({ weights }) => (isObject(weights) ? weights.group_size : undefined)).filter(Boolean),
  );
  const [size] = sizes;
  return differing(path, names, [
    ["quant_algo", own.quant_algo, beside.quant_algo],
    ["group_size", sizes.size === 1 ? size : undefined, beside.group_size ?? undefined],
    ["the list of unquantized modules", sorted(ignoredIn(own)), sorted(ignoredIn(beside))],
    ["the quantization of the cache", cacheOf(own), cacheOf(beside)],
    ["quantized_layers", byName(own.quantized_layers), byName(beside.quantized_layers)],
  ]);
}

const sorted = (names: readonly string[]): readonly string[] => [...new Set(names)].toSorted();

const byName = (layers: unknown): unknown =>
  isObject(layers)
    ? Object.entries(layers)
        .map(([name, of]) => [name, isObject(of) ? of.quant_algo : of])
        .toSorted()
    : undefined;

/** The algorithm of the cache; "none" where there is none. */
function cacheOf({ kv_cache_scheme: scheme, kv_cache_quant_algo: algorithm }: JsonObject): string {
  if (isObject(scheme)) return scheme.num_bits === 8 ? "FP8" : `${String(scheme.num_bits)} bits`;
  const named = scheme ?? algorithm;
  return typeof named === "string" ? named.toUpperCase() : "none";
}

/** Declarations of the whole model and of its language part, or under MLX's two names. */
function sameFile(path: string, model: JsonObject, own: JsonObject): Finding[] {
  const { text_config: text, quantization: mlx } = model;
  const inner = isObject(text) ? text.quantization_config : undefined;
  const each = (name: string, other: unknown, keys: readonly string[]): Finding[] =>
    isObject(other)
      ? differing(
          path,
          ["quantization_config", name],
          keys.map((key) => [key, own[key], other[key]] as const),
        )
      : [];
  return [
    ...each("text_config.quantization_config", inner, [
      "quant_method",
      "format",
      "quant_algo",
      "weight_block_size",
    ]),
    ...each("quantization", mlx, ["bits", "group_size", "mode"]),
  ];
}
