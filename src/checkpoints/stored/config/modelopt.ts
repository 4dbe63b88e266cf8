/** The algorithms of ModelOpt, and its list of quantized layers. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { countIn, isText } from "./json-fields.js";
import type { Resolver, Scheme } from "./scheme.js";

/** Resolves modules by ModelOpt's list of layers. */
export function layerResolver(json: JsonObject): Resolver | undefined {
  if (!isObject(json.quantized_layers)) return undefined;
  const layers = new Map(
    Object.entries(json.quantized_layers).flatMap(([name, layer]) =>
      isObject(layer)
        ? [[name, schemeOfAlgorithm(`quantized_layers["${name}"]`, layer, layer.quant_algo)] as const]
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

/** Returns the scheme of a ModelOpt algorithm. The scheme of an unknown name has no bits. */
export function schemeOfAlgorithm(location: string, json: JsonObject, name: unknown): Scheme {
  const algorithm = isText(name) ? ALGORITHMS[name.toUpperCase()] : undefined;
  const group = countIn(json.group_size);
  return {
    location,
    formats: isText(name) ? [name] : [],
    ...algorithm,
    ...(group === undefined ? {} : { group }),
  };
}
