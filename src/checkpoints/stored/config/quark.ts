/** The configurations of AMD Quark. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { matchesGlob } from "../../../text/glob.js";
import { countIn, isText } from "./json-fields.js";
import { type Resolver, type Scheme, UNKNOWN } from "./scheme.js";

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

function schemeOfQuark(location: string, json: JsonObject): Scheme {
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
    location,
    formats: [],
    ...(codeType ? { bits: codeType[0], type: codeType[1] } : {}),
    ...(strategy ? { strategy } : {}),
    ...(group === undefined ? {} : { group }),
    ...(scaleDType ? { scaleDType } : {}),
    ...(activations ? { activations } : {}),
  };
}

/** Resolves modules by the first layer pattern that matches, or by the global settings if no pattern matches. */
export function quarkResolver(json: JsonObject): Resolver | undefined {
  const global = json.global_quant_config;
  if (!isObject(global)) return undefined;
  const layers = isObject(json.layer_quant_config) ? Object.entries(json.layer_quant_config) : [];
  return (module) => {
    const layer = layers.find(([pattern]) => matchesGlob(pattern, module));
    const [location, settings] = layer
      ? [`layer_quant_config["${layer[0]}"]`, layer[1]]
      : ["global_quant_config", global];
    return isObject(settings)
      ? { kind: "quantized", scheme: schemeOfQuark(location, settings), by: "class" }
      : UNKNOWN;
  };
}
