/** Compares the configuration's scheme for each weight with the tensors of the weight. */
import { moduleOf, type RecognizedWeight } from "../../recognize/recognize.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import type { Claim } from "../../stored/config/claim.js";
import type { Scheme } from "../../stored/config/scheme.js";
import { conventionOf } from "../../stored/conventions.js";
import type { CheckpointTensors } from "../../stored/tensors.js";
import { type Finding, type FindingName, finding } from "../findings.js";
import type { ScaleStatistics } from "../statistics/scale-counter.js";

interface Compared {
  readonly weight: RecognizedWeight;
  readonly scheme: Scheme;
}

/** Compares one field of a scheme. Returns a description of the difference; undefined if there is none. */
type Field = (compared: Compared) => string | undefined;

const differ = (field: string, declared: unknown, actual: unknown): string | undefined =>
  declared === undefined || actual === undefined || declared === actual
    ? undefined
    : `${field} is ${String(declared)}, and the tensors have ${String(actual)}`;

/** The file types of scales by PyTorch's name. Loaders cast between the wide types. */
const SCALE_DTYPES: Readonly<Record<string, readonly string[]>> = {
  "torch.uint8": ["U8", "F8_E8M0"],
  "torch.float8_e8m0fnu": ["U8", "F8_E8M0"],
  "torch.float8_e4m3fn": ["F8_E4M3"],
  "torch.bfloat16": ["BF16", "F16", "F32"],
  "torch.float16": ["BF16", "F16", "F32"],
  "torch.float32": ["BF16", "F16", "F32"],
};

/** The bits of activations, for formats of compressed-tensors that fix them. */
const ACTIVATION_BITS: Readonly<Record<string, number>> = {
  "float-quantized": 8,
  "int-quantized": 8,
  "mxfp8-quantized": 8,
  "nvfp4-pack-quantized": 4,
};

const FIELDS: readonly Field[] = [
  ({ weight, scheme }) => differ("num_bits", scheme.bits, CODE_TYPES[codeType(weight)].bits),
  ({ scheme: { activationBits: declared, formats } }) => {
    const formatBits = formats.map((format) => ACTIVATION_BITS[format]).find((bits) => bits !== undefined);
    return declared === undefined || formatBits === undefined || declared === formatBits
      ? undefined
      : `num_bits of input_activations is ${declared}, and ${formats.join(", ")} has ${formatBits}`;
  },
  ({ weight, scheme }) => differ("type", scheme.type, kindOf(weight)),
  ({ weight, scheme }) => {
    if (scheme.strategy !== "group" && scheme.strategy !== "tensor_group") return undefined;
    const actualStrategy =
      weight.geometry.kind !== "group" ? weight.geometry.kind : weight.global ? "tensor_group" : "group";
    return differ("strategy", scheme.strategy, actualStrategy);
  },
  ({ scheme: { strategy, group, location } }) =>
    /group$/.test(strategy ?? "") && group === undefined && location.startsWith("config_groups")
      ? `strategy is ${strategy}, and there is no group_size`
      : undefined,
  ({ weight: { geometry, order }, scheme }) =>
    geometry.kind === "group" && !order ? differ("group_size", scheme.group, geometry.block[1]) : undefined,
  ({ weight: { geometry }, scheme }) =>
    geometry.kind === "tile" && scheme.block
      ? differ("block_structure", scheme.block.join("x"), geometry.block.join("x"))
      : undefined,
  ({ weight: { scale, unpacked }, scheme: { scaleDType } }) => {
    const dtypes = scaleDType === undefined ? undefined : SCALE_DTYPES[scaleDType];
    const dtype = unpacked?.scaleDType ?? scale.entry.dtype;
    return dtypes && !dtypes.includes(dtype) ? differ("scale_dtype", scaleDType, dtype) : undefined;
  },
  ({ weight, scheme: { symmetric } }) => {
    const { zeros } = conventionOf(weight.convention);
    if (symmetric !== false || !zeros || kindOf(weight) === "float" || weight.zeros) return undefined;
    return `symmetric is false, and there is no ${zeros.suffix}`;
  },
  ({ weight, scheme: { symmetric } }) =>
    symmetric === true && weight.unpacked?.differences
      ? "symmetric is true, and zero points are not 0"
      : undefined,
];

/** The type of codes in the file. */
const codeType = ({ type, unpacked }: RecognizedWeight): RecognizedWeight["type"] => unpacked?.type ?? type;

const kindOf = (weight: RecognizedWeight): "int" | "float" =>
  codeType(weight).startsWith("int") ? "int" : "float";

/** Suffixes of activation scales. */
const INPUT_SCALE = /\.(input_scale|input_global_scale|activation_scale|scale_input)$/;

/** The names of activation scales that a weight of this convention may have. */
export function inputScales({ convention, codes }: RecognizedWeight): readonly string[] {
  const { codes: part, others = [] } = conventionOf(convention);
  const prefix = codes.entry.name.slice(0, codes.entry.name.length - part.suffix.length);
  return others.filter((end) => INPUT_SCALE.test(end)).map((end) => prefix + end);
}

/** Findings about weights that differ from their declared scheme. */
export function judgeSchemes(
  claim: Claim,
  weights: readonly RecognizedWeight[],
  { tensors }: CheckpointTensors,
): Finding[] {
  return weights.flatMap((weight): Finding[] => {
    const resolved = claim.resolve(moduleOf(weight.name));
    if (!conventionOf(weight.convention).methods.includes(claim.method)) return [];
    if (resolved.kind === "unlisted")
      return [finding("config-ignored", weight.name, `is quantized, and ${claim.path} does not list it`)];
    if (resolved.kind !== "quantized") return [];
    const { scheme } = resolved;
    return [
      ...compareFields("config-scheme", claim, weight, scheme),
      ...(scheme.otherDeclaration
        ? compareFields("config-groups", claim, weight, scheme.otherDeclaration)
        : []),
      ...staticScale(claim, weight, scheme, tensors),
    ];
  });
}

/** Returns one finding about all fields that differ. */
function compareFields(
  name: FindingName,
  { path }: Claim,
  weight: RecognizedWeight,
  scheme: Scheme,
): Finding[] {
  const problems = FIELDS.map((field) => field({ weight, scheme })).filter((each) => each !== undefined);
  if (problems.length === 0) return [];
  return [finding(name, weight.name, `${scheme.location} of ${path}: ${problems.join("; ")}`)];
}

/** A finding if the configuration declares power-of-two scales and the statistics show other scales. */
export function judgeScaleFormat(
  claim: Claim | undefined,
  { name, scale: { entry } }: RecognizedWeight,
  { count, notFinite, zero, negative, powersOfTwo }: ScaleStatistics,
): Finding[] {
  const resolved = claim?.resolve(moduleOf(name));
  if (claim === undefined || resolved?.kind !== "quantized" || !resolved.scheme.powersOfTwo) return [];
  const otherCount = count - notFinite - zero - negative - powersOfTwo;
  if (otherCount === 0) return [];
  const problem = `scale_fmt of ${claim.path} is ue8m0, and ${otherCount} of ${count} scales of ${entry.name} are no powers of two`;
  return [finding("config-scheme", name, problem)];
}

/** A finding about a weight without the activation scales that the configuration declares. */
function staticScale(
  { path }: Claim,
  weight: RecognizedWeight,
  { location, activations }: Scheme,
  tensors: CheckpointTensors["tensors"],
): Finding[] {
  const names = inputScales(weight);
  const needsInputScales = activations === "static" || activations === "local";
  if (!needsInputScales || names.length === 0 || names.some((name) => tensors.has(name))) return [];
  const problem = `${location} of ${path} says that activations have ${activations === "local" ? "a recorded global scale" : "recorded scales"}; there is no ${names.join(" or ")}`;
  return [finding("scale-absent", weight.name, problem)];
}
