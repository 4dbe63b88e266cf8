/** The groups of modules that compressed-tensors and ModelOpt declare in `config_groups`. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { matchesGlob } from "../../../text/glob.js";
import { countIn, isText, listOf, pairIn } from "./json-fields.js";
import { schemeOfAlgorithm } from "./modelopt.js";
import { matchesStart } from "./patterns.js";
import { type Activations, type Resolved, type Resolver, type Scheme, UNKNOWN } from "./scheme.js";

/** Whether a target is a class name instead of a module name. */
const isClass = (target: string): boolean => /^[A-Z]\w*$/.test(target);

/** The weight and activation settings of compressed-tensors and ModelOpt. */
function settings(location: string, json: JsonObject, formats: readonly string[]): Scheme {
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
    location,
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

/**
 * The scheme of a group whose algorithm ModelOpt declares. ModelOpt's loaders read the algorithm, so it takes precedence. The
 * group's settings become `otherDeclaration`.
 */
function underAlgorithm(json: JsonObject, group: Scheme): Scheme {
  const scheme = schemeOfAlgorithm("quant_algo", json, json.quant_algo);
  if (scheme.bits === undefined) return group;
  const { activations } = group;
  return { ...scheme, ...(activations ? { activations } : {}), otherDeclaration: group };
}

/**
 * Resolves modules by the groups of compressed-tensors and ModelOpt. Module names take precedence over expressions, and
 * expressions over classes.
 */
export function groupResolver(json: JsonObject): Resolver | undefined {
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
    const groupByName = groups.find(({ targets }) => targets.includes(module));
    if (groupByName) return quantized(groupByName);
    for (const group of groups) {
      const matches = group.targets.map((target) =>
        target.startsWith("re:")
          ? matchesStart(target.slice(3), module)
          : /[*?]/.test(target) && matchesGlob(target, module),
      );
      if (matches.includes(true)) return quantized(group);
      if (matches.includes(undefined)) return UNKNOWN;
    }
    const linear = groups.find(({ targets }) => targets.includes("Linear") || targets.length === 0);
    if (linear) return quantized(linear, "class");
    return groups.some(({ targets }) => targets.some(isClass)) ? UNKNOWN : { kind: "unlisted" };
  };
}
