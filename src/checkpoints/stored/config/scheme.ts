/** Resolves the quantization scheme that a configuration declares for a module. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { matchesGlob } from "../../glob.js";
import { countIn, isText, listOf, pairIn } from "./json-fields.js";
import { isIgnored, matchesStart } from "./patterns.js";

/** The quantization of activations: with recorded scales, with only a recorded global scale, with computed scales, or none. */
export type Activations = "static" | "local" | "dynamic" | "none";

/** The quantization of the weights of one module. A field that the configuration does not declare is absent. */
export interface Scheme {
  /** The part of the configuration, for findings. */
  readonly where: string;
  /** The `format` of compressed-tensors, the algorithm of ModelOpt, the mode of MLX. */
  readonly formats: readonly string[];
  readonly bits?: number;
  readonly type?: "int" | "float";
  /** compressed-tensors' name (tensor, channel, group, tensor_group, block), or "groups" if a global scale is possible. */
  readonly strategy?: string;
  readonly group?: number;
  readonly block?: readonly [number, number];
  /** The PyTorch type of scales. */
  readonly scaleDType?: string;
  readonly symmetric?: boolean;
  readonly activations?: Activations;
  /** The bits of quantized activations. */
  readonly activationBits?: number;
  /** Whether scales are powers of two, whatever their type. */
  readonly powersOfTwo?: true;
  /** A second declaration in the same configuration, which this method's loaders do not read. */
  readonly otherDeclaration?: Scheme;
}

/** A configuration's answer for one module. */
export type Resolved =
  | {
      readonly kind: "quantized";
      readonly scheme: Scheme;
      /** Whether the configuration lists the module by name, or only its class or all modules. */
      readonly by: "name" | "class";
    }
  /** It excludes the module, or lists quantized modules without this one. */
  | { readonly kind: "ignored" | "unlisted" }
  /** Its patterns are not supported, or do not cover such modules. */
  | { readonly kind: "unknown" };

const UNKNOWN: Resolved = { kind: "unknown" };

/** The keys under which libraries list modules that are not quantized. */
const IGNORED_KEYS = ["ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers", "exclude"];

/** Patterns of the modules that are not quantized. */
export function ignoredIn(json: JsonObject): readonly string[] {
  return IGNORED_KEYS.flatMap((key) => listOf(json[key]).filter(isText));
}

/** Whether a target is a class name instead of a module name. */
const isClass = (target: string): boolean => /^[A-Z]\w*$/.test(target);

/** The weight and activation settings of compressed-tensors and ModelOpt. */
function settings(where: string, json: JsonObject, formats: readonly string[]): Scheme {
  const weights = isObject(json.weights) ? json.weights : {};
  const bits = countIn(weights.num_bits);
  const group = countIn(weights.group_size);
  const block = pairIn(weights.block_structure);
  const { strategy, symmetric } = weights;
  const type = isText(weights.type) ? weights.type.toLowerCase() : undefined;
  const activations = activationsIn(json);
  const activationBits = isObject(json.input_activations)
    ? countIn(json.input_activations.num_bits)
    : undefined;
  return {
    where,
    formats: isText(json.format) ? [json.format] : formats,
    ...(bits === undefined ? {} : { bits }),
    ...(type === "int" || type === "float" ? { type } : {}),
    ...(isText(strategy) ? { strategy } : {}),
    ...(group === undefined ? {} : { group }),
    ...(block ? { block } : {}),
    ...(isText(weights.scale_dtype) ? { scaleDType: weights.scale_dtype } : {}),
    ...(typeof symmetric === "boolean" ? { symmetric } : {}),
    ...(activations ? { activations } : {}),
    ...(activationBits === undefined ? {} : { activationBits }),
  };
}

function activationsIn(json: JsonObject): Activations | undefined {
  if (json.input_activations === null) return "none";
  if (!isObject(json.input_activations)) return undefined;
  const { dynamic } = json.input_activations;
  if (dynamic === "local") return "local";
  return dynamic === true ? "dynamic" : "static";
}

interface Group {
  readonly targets: readonly string[];
  readonly scheme: Scheme;
}

/** ModelOpt's loaders read the algorithm, so it takes precedence. The group's settings become `beside`. */
function underAlgorithm(json: JsonObject, group: Scheme): Scheme {
  const scheme = ofAlgorithm("quant_algo", json, json.quant_algo);
  if (scheme.bits === undefined) return group;
  const { activations } = group;
  return { ...scheme, ...(activations ? { activations } : {}), otherDeclaration: group };
}

/** Resolves modules by the groups of compressed-tensors and ModelOpt: by name, then by expression, then by class. */
function byGroups(json: JsonObject): ((module: string) => Resolved) | undefined {
  if (!isObject(json.config_groups)) return undefined;
  const formats = [json.format, json.quant_algo].filter(isText).filter((each) => each !== "mixed-precision");
  const groups = Object.entries(json.config_groups).flatMap(([name, group]): Group[] =>
    isObject(group)
      ? [
          {
            targets: listOf(group.targets).filter(isText),
            scheme: underAlgorithm(json, settings(`config_groups.${name}`, group, formats)),
          },
        ]
      : [],
  );
  if (groups.length === 0) return undefined;
  return (module) => {
    const quantized = ({ scheme }: Group, by: "name" | "class" = "name"): Resolved => ({
      kind: "quantized",
      scheme,
      by,
    });
    const named = groups.find(({ targets }) => targets.includes(module));
    if (named) return quantized(named);
    for (const group of groups) {
      const each = group.targets.map((target) =>
        target.startsWith("re:")
          ? matchesStart(target.slice(3), module)
          : /[*?]/.test(target) && matchesGlob(target, module),
      );
      if (each.includes(true)) return quantized(group);
      if (each.includes(undefined)) return UNKNOWN;
    }
    const linear = groups.find(({ targets }) => targets.includes("Linear") || targets.length === 0);
    if (linear) return quantized(linear, "class");
    return groups.some(({ targets }) => targets.some(isClass)) ? UNKNOWN : { kind: "unlisted" };
  };
}

/** Resolves modules by ModelOpt's list of layers. */
function byLayers(json: JsonObject): ((module: string) => Resolved) | undefined {
  if (!isObject(json.quantized_layers)) return undefined;
  const layers = new Map(
    Object.entries(json.quantized_layers).flatMap(([name, layer]) =>
      isObject(layer)
        ? [[name, ofAlgorithm(`quantized_layers["${name}"]`, layer, layer.quant_algo)] as const]
        : [],
    ),
  );
  return (module) => {
    const scheme = layers.get(module) ?? enclosing(layers, module);
    return scheme ? { kind: "quantized", scheme, by: "name" } : { kind: "unlisted" };
  };
}

/** The entry of the nearest enclosing module. */
function enclosing<T>(layers: ReadonlyMap<string, T>, module: string): T | undefined {
  for (let end = module.lastIndexOf("."); end > 0; end = module.lastIndexOf(".", end - 1)) {
    const entry = layers.get(module.slice(0, end));
    if (entry !== undefined) return entry;
  }
  return undefined;
}

interface Algorithm {
  readonly bits: number;
  readonly type: "int" | "float";
  readonly strategy: string;
  readonly group?: number;
}

/** The algorithms of ModelOpt (`convert_hf_config.py`, `quant_utils.py` of 0.47.0). */
const ALGORITHMS: Readonly<Record<string, Algorithm>> = {
  FP8: { bits: 8, type: "float", strategy: "tensor" },
  FP8_PER_CHANNEL_PER_TOKEN: { bits: 8, type: "float", strategy: "channel" },
  FP8_PB_WO: { bits: 8, type: "float", strategy: "block" },
  MXFP8: { bits: 8, type: "float", strategy: "group", group: 32 },
  NVFP4: { bits: 4, type: "float", strategy: "tensor_group" },
  NVFP4_AWQ: { bits: 4, type: "float", strategy: "tensor_group" },
  W4A16_NVFP4: { bits: 4, type: "float", strategy: "tensor_group" },
  W4A8_NVFP4_FP8: { bits: 4, type: "float", strategy: "tensor_group" },
  MXFP4: { bits: 4, type: "float", strategy: "group", group: 32 },
  W4A8_MXFP4_FP8: { bits: 4, type: "float", strategy: "group", group: 32 },
  W4A16_AWQ: { bits: 4, type: "int", strategy: "group" },
  W4A8_AWQ: { bits: 4, type: "int", strategy: "group" },
  W8A16: { bits: 8, type: "int", strategy: "channel" },
  W8A8_SQ_PER_CHANNEL: { bits: 8, type: "int", strategy: "channel" },
};

function ofAlgorithm(where: string, json: JsonObject, name: unknown): Scheme {
  const algorithm = isText(name) ? ALGORITHMS[name.toUpperCase()] : undefined;
  const group = countIn(json.group_size);
  return {
    where,
    formats: isText(name) ? [name] : [],
    ...algorithm,
    ...(group === undefined ? {} : { group }),
  };
}

/** The types of Quark (`quark/torch/quantization/config/type.py`). */
const QUARK_TYPES: Readonly<Record<string, readonly [bits: number, type: "int" | "float"]>> = {
  fp4: [4, "float"],
  fp6_e2m3: [6, "float"],
  fp6_e3m2: [6, "float"],
  fp8_e4m3: [8, "float"],
  fp8_e5m2: [8, "float"],
  int4: [4, "int"],
  uint4: [4, "int"],
  int8: [8, "int"],
  uint8: [8, "int"],
};
const QUARK_SCALES: Readonly<Record<string, string>> = { e8m0: "torch.uint8" };
const QUARK_STRATEGIES: Readonly<Record<string, string>> = {
  per_tensor: "tensor",
  per_channel: "channel",
  per_group: "groups",
};

function ofQuark(where: string, json: JsonObject): Scheme {
  const list = Array.isArray(json.weight) ? json.weight : [json.weight];
  const [first] = list;
  const weight = isObject(first) ? first : {};
  const input = Array.isArray(json.input_tensors) ? json.input_tensors.at(-1) : json.input_tensors;
  const codeType = isText(weight.dtype) ? QUARK_TYPES[weight.dtype] : undefined;
  const strategy = isText(weight.qscheme) ? QUARK_STRATEGIES[weight.qscheme] : undefined;
  const group = countIn(weight.group_size);
  const scaleDType = isText(weight.scale_format) ? QUARK_SCALES[weight.scale_format] : undefined;
  const activations =
    input === null
      ? "none"
      : isObject(input)
        ? input.is_dynamic === false
          ? "static"
          : "dynamic"
        : undefined;
  return {
    where,
    formats: [],
    ...(codeType ? { bits: codeType[0], type: codeType[1] } : {}),
    ...(strategy ? { strategy } : {}),
    ...(group === undefined ? {} : { group }),
    ...(scaleDType ? { scaleDType } : {}),
    ...(activations ? { activations } : {}),
  };
}

function byQuark(json: JsonObject): ((module: string) => Resolved) | undefined {
  const global = json.global_quant_config;
  if (!isObject(global)) return undefined;
  const layers = isObject(json.layer_quant_config) ? Object.entries(json.layer_quant_config) : [];
  return (module) => {
    const layer = layers.find(([pattern]) => matchesGlob(pattern, module));
    const [where, settings] = layer
      ? [`layer_quant_config["${layer[0]}"]`, layer[1]]
      : ["global_quant_config", global];
    return isObject(settings)
      ? { kind: "quantized", scheme: ofQuark(where, settings), by: "class" }
      : UNKNOWN;
  };
}

/** MLX: settings of a single module override the common ones; `false` leaves the module unquantized. */
function byMlx(json: JsonObject): (module: string) => Resolved {
  return (module) => {
    const override = json[module];
    if (override === false) return { kind: "ignored" };
    const settings = isObject(override) ? override : json;
    const mode = isText(settings.mode) ? settings.mode : "affine";
    const bits = countIn(settings.bits);
    const group = countIn(settings.group_size);
    const scheme = {
      where: isObject(override) ? `quantization["${module}"]` : "quantization",
      formats: [mode],
      ...(bits === undefined ? {} : { bits }),
      ...(group === undefined ? {} : { group }),
    };
    return { kind: "quantized", scheme, by: "class" };
  };
}

/** Resolves every module to the same settings. */
function byOne(json: JsonObject): (module: string) => Resolved {
  const block = pairIn(json.weight_block_size);
  const scheme: Scheme = {
    ...ofAlgorithm("quantization_config", json, json.quant_algo ?? json.format),
    ...(block ? { block } : {}),
    ...(json.scale_fmt === "ue8m0" ? { powersOfTwo: true as const } : {}),
    ...(json.activation_scheme === "static" || json.activation_scheme === "dynamic"
      ? { activations: json.activation_scheme }
      : {}),
  };
  return () => ({ kind: "quantized", scheme, by: "class" });
}

/** Returns a function that resolves modules by a configuration. */
export function resolver(json: JsonObject, method: string): (module: string) => Resolved {
  const ignored = ignoredIn(json);
  const resolve =
    method === "mlx"
      ? byMlx(json)
      : (byLayers(json) ?? byGroups(json) ?? (method === "quark" ? byQuark(json) : undefined) ?? byOne(json));
  return (module) => {
    const left = isIgnored(ignored, module);
    if (left === true) return { kind: "ignored" };
    return left === undefined ? UNKNOWN : resolve(module);
  };
}
