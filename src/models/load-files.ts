/** Loads language models from open files. */
import type { Backend } from "../backends/backend.js";
import { parsedBy } from "../checkpoints/api/options.js";
import type { WeightChanges } from "../checkpoints/convert/changes/weight-changes.js";
import { convertInMemory } from "../checkpoints/convert/in-memory.js";
import { type ConversionTarget, parseTarget } from "../checkpoints/convert/targets/named.js";
import { GGUF_EMBEDDINGS, ggufConfig, ggufKeys } from "../checkpoints/gguf/model-config.js";
import { CONFIG_FILE } from "../checkpoints/stored/config/config.js";
import type { CheckpointFiles } from "../checkpoints/stored/files.js";
import { type CheckpointFolder, requireJson } from "../checkpoints/stored/folder.js";
import type { StoredTensor } from "../checkpoints/stored/tensors.js";
import { type Survey, surveyFiles } from "../checkpoints/survey.js";
import { FileError } from "../errors.js";
import { defaultRandom } from "../modules/module.js";
import { uninitialized } from "../modules/parameter.js";
import { optionsOf } from "../options.js";
import { type Recipe, recipeOption } from "../recipes/recipe.js";
import { dtypeOf } from "../tensor/require.js";
import { WIDE_DTYPES, type WideDType } from "../tensor/shape.js";
import { CausalLM } from "./causal-lm.js";
import type { CausalLMConfig } from "./config/config.js";
import { ConfigFields } from "./config/fields.js";
import { readConfig } from "./config/read.js";
import { familyOf } from "./families/table.js";
import {
  architectureOf,
  architectureOfType,
  ggufNames,
  ROPE_FACTORS,
  requireKeys,
} from "./gguf/architectures.js";
import { cacheScalesOf } from "./weights/cache-scales.js";
import { loadWeights } from "./weights/load.js";
import { type StoredSize, sizesOf } from "./weights/sizes.js";
import { hubNames, type WeightNames } from "./weights/sources.js";
import { storedValues } from "./weights/stored.js";

/** The form of a model's weights: `as stored`, or a target of `convertCheckpoint`. */
export type WeightForm = "as stored" | ConversionTarget;

/** Parses the name of a `WeightForm`. */
export const weightForm = parsedBy((name) => name === "as stored" || parseTarget(name));

/** Options of `loadCausalLM`. All fields are optional. */
export interface LoadCausalLMOptions {
  /** The dtype of parameters and activations. Default: the dtype that config.json names, else bf16. */
  readonly dtype?: WideDType | undefined;
  /**
   * The form whose values are loaded. The parameters have the bits of the checkpoint that `convertCheckpoint` writes with this
   * name as `to`. Weights are converted in memory one at a time, and no file is written. Default: "as stored".
   */
  readonly weights?: WeightForm | undefined;
  /**
   * The recipe under which the linear layers in decoder layers quantize their inputs and weights. The table of embeddings and the
   * output layer stay in high precision. Default: none.
   */
  readonly recipe?: Recipe | undefined;
}

/** Checks the options of a function that loads a model. */
export const checkLoadOptions = optionsOf<LoadCausalLMOptions>({
  dtype: dtypeOf(WIDE_DTYPES),
  weights: weightForm,
  recipe: recipeOption,
});

/** The number of findings that an error lists. */
const FINDINGS_SHOWN = 4;

/** A model, and the sizes and changes of the tensors from which its parameters were read. */
export interface MeasuredModel {
  readonly model: CausalLM;
  /** The sizes of tensors in the form of the weights. */
  readonly sizes: readonly StoredSize[];
  /** The changes of each weight by its conversion to the form, by the name of its tensor. */
  readonly changes: ReadonlyMap<string, WeightChanges>;
}

/** Loads a model with checked arguments from open files, and closes the files. Throws the errors of `loadCausalLM`. */
export async function loadFiles(
  backend: Backend,
  files: CheckpointFiles,
  { dtype, weights = "as stored", recipe }: LoadCausalLMOptions,
): Promise<MeasuredModel> {
  const { path } = files;
  try {
    const stored = await surveyFiles(files);
    requireSound(path, stored);
    const { config, names } = await describe(files, stored);
    const { survey, changes } =
      weights === "as stored"
        ? { survey: stored, changes: new Map() }
        : await convertInMemory(files, parseTarget(weights), async () => backend);
    requireSound(`${path} as ${weights}`, survey);
    const values = storedValues(survey);
    const model = CausalLM.of(backend, {
      config,
      cacheScales: await cacheScalesOf(path, backend, values, config.layers.length),
      dtype: dtype ?? config.dtype ?? "bf16",
      random: defaultRandom(backend),
      recipe,
      initMethod: uninitialized,
    });
    try {
      await loadWeights(path, model, values, names);
      return { model, sizes: sizesOf(survey, values, model, names), changes };
    } catch (error) {
      model.dispose();
      throw error;
    }
  } finally {
    await files.close();
  }
}

/** Throws `FileError` for a checkpoint that `verifyCheckpoint` would refuse without reading its codes. */
function requireSound(path: string, { findings }: Survey): void {
  const errors = findings.filter(({ severity }) => severity === "error");
  if (errors.length === 0) return;
  const shown = errors.slice(0, FINDINGS_SHOWN).map(({ name, subject, what, remedy }) => {
    return `${name}: ${subject}: ${what}; ${remedy}`;
  });
  const more = errors.length - shown.length;
  throw new FileError(`${path}: ${shown.join(". ")}${more > 0 ? `. ${more} more` : ""}`);
}

/** The configuration of a model, and how its checkpoint names the tensors. */
async function describe(
  { path, folder, gguf, tensors }: CheckpointFiles,
  { weights }: Survey,
): Promise<{ readonly config: CausalLMConfig; readonly names: WeightNames }> {
  const ropeFactors = tensors.get(ROPE_FACTORS);
  const withFactors = async (config: CausalLMConfig): Promise<CausalLMConfig> =>
    ropeFactors ? scaledBy(await readFactors(ropeFactors), config, ropeFactors) : config;
  const shapes = new Map([...tensors].map(([name, { entry }]) => [name, entry.shape]));
  for (const { name, shape } of weights) shapes.set(name, shape);
  const has = (tensor: string): boolean => shapes.has(tensor);
  if (!gguf) {
    const fields = new ConfigFields(...(await readHubConfig(folder)));
    const config = readConfig(fields);
    // a conversion keeps the names of a GGUF file
    if (has(GGUF_EMBEDDINGS)) {
      const names = ggufNames(architectureOfType(path, config.modelType), config, has);
      return { config: await withFactors(config), names };
    }
    const hub = hubNames(config.tieWordEmbeddings);
    return { config, names: familyOf(path, config.modelType).names?.(hub, config, fields) ?? hub };
  }
  const { metadata } = gguf;
  const architecture = architectureOf(path, metadata["general.architecture"]);
  requireKeys(path, architecture, metadata);
  const json = ggufConfig(architecture, metadata, (name) => shapes.get(name));
  const config = await withFactors(readConfig(new ConfigFields(path, json, ggufKeys(architecture))));
  return { config, names: ggufNames(architecture, config, has) };
}

/** Reads the divisors of the rotary frequencies in a GGUF file. */
async function readFactors({ shard, entry }: StoredTensor): Promise<readonly number[]> {
  if (entry.dtype !== "F32")
    throw new FileError(`${shard.path}: tensor "${entry.name}" is ${entry.dtype}; it must be F32`);
  return Array.from(new Float32Array((await shard.read(entry)).slice().buffer));
}

/**
 * The configuration with these divisors of the rotary frequencies in all layers. Throws `FileError` for invalid divisors, and if
 * the configuration has another scaling rule.
 */
function scaledBy(
  factors: readonly number[],
  config: CausalLMConfig,
  { shard, entry: { name } }: StoredTensor,
): CausalLMConfig {
  const refuse = (label: string): FileError => new FileError(`${shard.path}: tensor "${name}" ${label}`);
  if (!factors.every((factor) => Number.isFinite(factor) && factor > 0))
    throw refuse("has a number that is not above 0; it divides frequencies");
  const layers = config.layers.map((layer) => {
    const { rotary } = layer.attention;
    if (rotary.scaling) throw refuse("and the metadata both scale frequencies; one of them is needed");
    if (factors.length !== rotary.dim / 2)
      throw refuse(`has ${factors.length} numbers; heads have ${rotary.dim / 2} pairs of elements`);
    return {
      ...layer,
      attention: {
        ...layer.attention,
        rotary: { ...rotary, scaling: { kind: "factors", factors } as const },
      },
    };
  });
  return { ...config, layers };
}

async function readHubConfig(folder: CheckpointFolder): Promise<ConstructorParameters<typeof ConfigFields>> {
  return [folder.pathOf(CONFIG_FILE), await requireJson(folder, CONFIG_FILE)];
}
