/** Resolves modules by a configuration of any method: its ignored modules, then its groups, layers or common settings. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { groupResolver } from "./groups.js";
import { countIn, isText, listOf, pairIn } from "./json-fields.js";
import { layerResolver, schemeOfAlgorithm } from "./modelopt.js";
import { isIgnored } from "./patterns.js";
import { quarkResolver } from "./quark.js";
import { type Resolver, type Scheme, UNKNOWN } from "./scheme.js";

/** The keys under which libraries list modules that are not quantized. */
const IGNORED_KEYS = ["ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers", "exclude"];

/** Patterns of the modules that are not quantized. */
export function ignoredIn(json: JsonObject): readonly string[] {
  return IGNORED_KEYS.flatMap((key) => listOf(json[key]).filter(isText));
}

/** Resolves modules for MLX. Settings of a module override the common settings; `false` leaves the module unquantized. */
function mlxResolver(json: JsonObject): Resolver {
  return (module) => {
    const override = json[module];
    if (override === false) return { kind: "ignored" };
    const settings = isObject(override) ? override : json;
    const mode = isText(settings.mode) ? settings.mode : "affine";
    const bits = countIn(settings.bits);
    const group = countIn(settings.group_size);
    const scheme = {
      location: isObject(override) ? `quantization["${module}"]` : "quantization",
      formats: [mode],
      ...(bits === undefined ? {} : { bits }),
      ...(group === undefined ? {} : { group }),
    };
    return { kind: "quantized", scheme, by: "class" };
  };
}

/** Resolves every module to the same settings. */
function commonResolver(json: JsonObject): Resolver {
  const block = pairIn(json.weight_block_size);
  const scheme: Scheme = {
    ...schemeOfAlgorithm("quantization_config", json, json.quant_algo ?? json.format),
    ...(block ? { block } : {}),
    ...(json.scale_fmt === "ue8m0" ? { powersOfTwo: true as const } : {}),
    ...(json.activation_scheme === "static" || json.activation_scheme === "dynamic"
      ? { activations: json.activation_scheme }
      : {}),
  };
  return () => ({ kind: "quantized", scheme, by: "class" });
}

/** Returns a function that resolves modules by a configuration. */
export function resolver(json: JsonObject, method: string): Resolver {
  const ignored = ignoredIn(json);
  const resolve =
    method === "mlx"
      ? mlxResolver(json)
      : (layerResolver(json) ??
        groupResolver(json) ??
        (method === "quark" ? quarkResolver(json) : undefined) ??
        commonResolver(json));
  return (module) => {
    const isLeftOut = isIgnored(ignored, module);
    if (isLeftOut === true) return { kind: "ignored" };
    return isLeftOut === undefined ? UNKNOWN : resolve(module);
  };
}
