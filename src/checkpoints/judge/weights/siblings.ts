/** Checks that weights of one kind have the same tensors. Compares activation scales, experts and layers. */
import { isObject, type JsonObject } from "../../../io/header/header.js";
import { moduleOf, type RecognizedWeight } from "../../recognize/recognize.js";
import type { Claim } from "../../stored/config/claim.js";
import { conventionOf } from "../../stored/conventions.js";
import type { CheckpointFiles } from "../../stored/files.js";
import type { CheckpointTensors } from "../../stored/tensors.js";
import { inputScales } from "../config/schemes.js";
import { type Finding, finding } from "../findings.js";

/** Findings about absent tensors that siblings have. `model`: the object in config.json. */
export function judgeSiblings(
  checkpoint: CheckpointFiles,
  weights: readonly RecognizedWeight[],
  claim: Claim | undefined,
  model: JsonObject | undefined,
): Finding[] {
  return [
    ...inputs(checkpoint, weights, claim),
    ...companions(checkpoint, weights),
    ...incompleteConventions(weights),
    ...globals(weights),
    ...(checkpoint.isFolder || checkpoint.shards.length > 1
      ? judgeIndices(checkpoint, model)
      : judgeIndices(checkpoint, undefined)),
  ];
}

/** Activation scales, compared among weights with the same convention and scheme. */
function inputs(
  { tensors, container }: CheckpointTensors,
  weights: readonly RecognizedWeight[],
  claim: Claim | undefined,
): Finding[] {
  const groups = new Map<
    string,
    { readonly presentNames: string[]; readonly missingTensors: { weight: string; names: string }[] }
  >();
  for (const weight of weights) {
    const resolved = claim?.resolve(moduleOf(weight.name));
    const scheme = resolved?.kind === "quantized" ? resolved.scheme : undefined;
    if (scheme?.activations === "none") continue;
    const names = inputScales(weight);
    if (names.length === 0) continue;
    const key = JSON.stringify([weight.convention, scheme?.location, scheme?.formats, scheme?.activations]);
    const group = groups.get(key) ?? { presentNames: [], missingTensors: [] };
    groups.set(key, group);
    const existingName = names.find((name) => tensors.has(name));
    if (existingName !== undefined) group.presentNames.push(existingName);
    else group.missingTensors.push({ weight: weight.name, names: names.join(" or ") });
  }
  const isGguf = container === "gguf";
  return [...groups.values()].flatMap(({ presentNames, presentNames: [example], missingTensors }) =>
    example === undefined || (isGguf && presentNames.length <= missingTensors.length)
      ? []
      : missingTensors.map(({ weight, names }) =>
          finding("scale-absent", weight, `there is no ${names}, and others have one, such as ${example}`),
        ),
  );
}

/** The name of a weight with its indices replaced by `*`. Corresponding weights of all layers have the same result. */
const roleOf = (name: string): string => name.replace(/\.\d+(?=\.)/g, ".*");

/** Tensors other than codes and scales, compared among experts and among layers. */
function companions({ tensors }: CheckpointTensors, weights: readonly RecognizedWeight[]): Finding[] {
  const roles = new Map<string, RecognizedWeight[]>();
  for (const weight of weights) {
    const key = `${weight.convention} ${roleOf(weight.name)}`;
    const members = roles.get(key) ?? [];
    members.push(weight);
    roles.set(key, members);
  }
  return [...roles.values()].flatMap((members) => {
    const [first] = members;
    if (!first || members.length === 1) return [];
    const { codes, others = [], zeros, order, factors } = conventionOf(first.convention);
    const ends = new Set([...others, zeros?.suffix, order, factors].filter((end) => end !== undefined));
    const inputScaleSuffixes = inputScales(first).map((name) =>
      name.slice(prefixOf(first, codes.suffix).length),
    );
    return [...ends].flatMap((end) => {
      if (inputScaleSuffixes.includes(end)) return [];
      const companionNames = members.map((weight) => prefixOf(weight, codes.suffix) + end);
      const example = companionNames.find((name) => tensors.has(name));
      if (example === undefined) return [];
      return companionNames.flatMap((name, i) =>
        tensors.has(name)
          ? []
          : [
              finding(
                "scale-absent",
                (members[i] as RecognizedWeight).name,
                `there is no ${name}, and there is ${example}`,
              ),
            ],
      );
    });
  });
}

/** Weights whose convention is the incomplete form of another convention in the file. */
function incompleteConventions(weights: readonly RecognizedWeight[]): Finding[] {
  const names = new Set<string>(weights.map(({ convention }) => convention));
  const markedWeight = weights.find(({ convention }) => conventionOf(convention).marker);
  const { marker = "" } = markedWeight ? conventionOf(markedWeight.convention) : {};
  return weights.flatMap(({ name, convention }) => {
    const { lesserOf, marker: ownMarker } = conventionOf(convention);
    if (lesserOf !== undefined && names.has(lesserOf))
      return [finding("scale-absent", name, `is ${convention}, and others are ${lesserOf}`)];
    if (!markedWeight || ownMarker !== undefined) return [];
    return [
      finding(
        "scale-absent",
        name,
        `there is no ${moduleOf(name)}${marker}, and ${markedWeight.name} has one`,
      ),
    ];
  });
}

/** The name of a weight's tensor of codes without the suffix `end`. */
function prefixOf({ codes: { entry } }: RecognizedWeight, end: string): string {
  return entry.name.slice(0, entry.name.length - end.length);
}

/** A finding for each weight without an optional global scale, if most weights of the file have one. */
function globals(weights: readonly RecognizedWeight[]): Finding[] {
  const optional = weights.filter(({ convention }) => conventionOf(convention).global?.optional);
  const scaled = optional.filter(({ global }) => global);
  const example = scaled[0]?.global?.entry.name;
  if (example === undefined || 2 * scaled.length <= optional.length) return [];
  return optional
    .filter(({ global }) => !global)
    .map(({ name, convention }) =>
      finding(
        "scale-absent",
        name,
        `there is no ${moduleOf(name)}${conventionOf(convention).global?.suffix}, and others have one, such as ${example}`,
      ),
    );
}

const EXPERT = /^(.*\bexperts)\.(\d+)\.(.+)$/s;
const LAYER = /^(.*?\b(?:layers|blocks|block|blk|h))\.(\d+)\.(.+)$/s;
const EXPERT_COUNTS = ["num_experts", "n_routed_experts", "num_local_experts"];
/** The bound of the indices of layers and experts. A larger number in a name is not an index. */
const MAX_NUMBER = 1 << 16;

/** Findings about missing experts and layers, and about experts without a tensor that all other experts have. */
function judgeIndices({ tensors }: CheckpointTensors, model: JsonObject | undefined): Finding[] {
  const experts = new Map<string, Map<number, Set<string>>>();
  const layers = new Map<string, Set<number>>();
  for (const name of tensors.keys()) {
    const [, stack, index, tensorSuffix = ""] = EXPERT.exec(name) ?? [];
    const expert = Number(index);
    if (stack !== undefined && expert < MAX_NUMBER) {
      const members = experts.get(stack) ?? new Map<number, Set<string>>();
      members.set(expert, (members.get(expert) ?? new Set()).add(tensorSuffix));
      experts.set(stack, members);
    }
    const [, list, number] = LAYER.exec(name) ?? [];
    const layer = Number(number);
    if (list !== undefined && layer < MAX_NUMBER)
      layers.set(list, (layers.get(list) ?? new Set<number>()).add(layer));
  }
  return [
    ...[...experts].flatMap(([stack, members]) => expertsOf(stack, members, countOf(model, EXPERT_COUNTS))),
    ...[...layers].flatMap(([list, numbers]) => layersOf(list, numbers, model)),
  ];
}

/** The first number under one of several keys, in config.json or in its `text_config`. */
function countOf(model: JsonObject | undefined, keys: readonly string[]): number | undefined {
  const text = isObject(model?.text_config) ? model.text_config : undefined;
  const numbers = keys.flatMap((key) => [model?.[key], text?.[key]]);
  return numbers.find(
    (number): number is number =>
      Number.isSafeInteger(number) && (number as number) > 0 && (number as number) < MAX_NUMBER,
  );
}

function expertsOf(
  stack: string,
  members: ReadonlyMap<number, ReadonlySet<string>>,
  declared: number | undefined,
): Finding[] {
  const count = Math.max(declared ?? 0, Math.max(...members.keys()) + 1);
  const counts = new Map<string, number>();
  for (const suffixes of members.values())
    for (const part of suffixes) counts.set(part, (counts.get(part) ?? 0) + 1);
  const missingIndices = Array.from({ length: count }, (_, i) => i).filter((i) => !members.has(i));
  const missingExperts = missingIndices.map((i) =>
    finding(
      "expert-absent",
      `${stack}.${i}`,
      `has no tensors; there are ${members.size} of ${count} experts`,
    ),
  );
  const expectedCount = members.size - 1;
  const incompleteExperts = [...members].flatMap(([i, suffixes]) =>
    [...counts]
      .filter(
        ([part, times]) =>
          times === expectedCount && expectedCount > 0 && members.size > 2 && !suffixes.has(part),
      )
      .map(([part]) =>
        finding("expert-absent", `${stack}.${i}`, `has no ${part}, and all other experts have`),
      ),
  );
  return [...missingExperts, ...incompleteExperts];
}

function layersOf(list: string, numbers: ReadonlySet<number>, model: JsonObject | undefined): Finding[] {
  const declared = /(^|\.)(model|language_model)\.(language_model\.)?layers$/.test(list)
    ? countOf(model, ["num_hidden_layers"])
    : undefined;
  const first = Math.min(...numbers);
  const count = Math.max(declared ?? 0, Math.max(...numbers) + 1);
  const begin = declared === undefined ? first : 0;
  const missingIndices = Array.from({ length: count - begin }, (_, i) => i + begin).filter(
    (i) => !numbers.has(i),
  );
  return missingIndices.map((i) =>
    finding("layer-absent", `${list}.${i}`, `has no tensors; there are ${numbers.size} of ${count} layers`),
  );
}
