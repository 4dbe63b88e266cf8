/** Loads language models. */
import { join } from "node:path";
import { type Backend, requireBackend } from "../backends/backend.js";
import { requireCheckpointPath } from "../checkpoints/api/options.js";
import {
  CONVERSION_TARGETS,
  type ConversionTarget,
  parseTarget,
} from "../checkpoints/convert/targets/named.js";
import { type CheckpointFiles, openCheckpointFiles, readJsonFile } from "../checkpoints/stored/open.js";
import { type Survey, surveyFiles } from "../checkpoints/survey.js";
import { FileError } from "../errors.js";
import { defaultRandom } from "../modules/module.js";
import { uninitialized } from "../modules/parameter.js";
import { oneOf, optionsOf } from "../options.js";
import { type Recipe, recipeOption } from "../recipes/recipe.js";
import { dtypeOf } from "../tensor/require.js";
import { WIDE_DTYPES, type WideDType } from "../tensor/shape.js";
import { CausalLM } from "./causal-lm.js";
import type { CausalLMConfig } from "./config/config.js";
import { ConfigFields } from "./config/fields.js";
import { readConfig } from "./config/read.js";
import { familyOf } from "./families/table.js";
import { ggufNames } from "./gguf/architectures.js";
import { ggufFields } from "./gguf/config.js";
import { valuesInForm } from "./weights/forms.js";
import { loadWeights } from "./weights/load.js";
import { hubNames, type WeightNames } from "./weights/places.js";
import { storedValues } from "./weights/stored.js";

/** Options of `loadCausalLM`. All fields are optional. */
export interface LoadCausalLMOptions {
  /** The dtype of parameters and activations. Default: the dtype that config.json names, else bf16. */
  readonly dtype?: WideDType | undefined;
  /**
   * The form whose values the weights have. `"as stored"`: the values of the files. The name of a target of `convertCheckpoint`:
   * the values after that conversion, which is done in memory, one weight at a time; it shows what the form costs. Default
   * `"as stored"`.
   */
  readonly weights?: "as stored" | ConversionTarget | undefined;
  /**
   * The recipe under which the linear layers in decoder layers quantize their inputs and weights. The table of embeddings and the
   * output layer stay in high precision. Default: none.
   */
  readonly recipe?: Recipe | undefined;
}

const AS_STORED = "as stored";

const checkOptions = optionsOf<LoadCausalLMOptions>({
  dtype: dtypeOf(WIDE_DTYPES),
  weights: oneOf([AS_STORED, ...CONVERSION_TARGETS]),
  recipe: recipeOption,
});

/** The number of findings that an error lists. */
const FINDINGS_SHOWN = 4;

/**
 * Loads a language model from a folder with config.json and safetensors files, or from a GGUF file or a folder of them. Weights
 * in any form that `openCheckpoint` reads are dequantized to f32 and rounded to `dtype`, one tensor at a time. The caller
 * disposes of the model.
 *
 * @throws `FileError` for a path that leads to no checkpoint, a checkpoint with errors that need no codes (see
 * `verifyCheckpoint`), a configuration that is missing, damaged or of an unknown family, and tensors that are missing, have
 * another shape than the configuration says, or belong to no parameter; `ArgumentError` for an invalid argument, `DTypeError` for
 * a `dtype` other than f32, bf16 and f16, `DisposedError` for a disposed backend, `OutOfMemoryError` if the weights do not fit
 * into memory.
 */
export async function loadCausalLM(
  backend: Backend,
  path: string,
  options: LoadCausalLMOptions = {},
): Promise<CausalLM> {
  requireBackend("loadCausalLM", backend);
  requireCheckpointPath("loadCausalLM", "path", path);
  const { dtype, weights = AS_STORED, recipe } = checkOptions("loadCausalLM", options);
  const files = await openCheckpointFiles(path);
  try {
    const survey = await surveyFiles(files);
    requireSound(path, survey);
    const { config, names } = await describe(files, survey);
    const model = CausalLM.of(backend, {
      config,
      dtype: dtype ?? config.dtype ?? "bf16",
      random: defaultRandom(backend),
      recipe,
      initMethod: uninitialized,
    });
    try {
      const stored = storedValues(survey);
      const values =
        weights === AS_STORED ? stored : await valuesInForm(files, stored, parseTarget(weights), backend);
      await loadWeights(path, model, values, names);
      return model;
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
  if (!gguf) {
    const fields = new ConfigFields(...(await readHubConfig(folder)));
    const config = readConfig(fields);
    const hub = hubNames(config.tieWordEmbeddings);
    return { config, names: familyOf(path, config.modelType).names?.(hub, config, fields) ?? hub };
  }
  const shapes = new Map([...tensors].map(([name, { entry }]) => [name, entry.shape]));
  for (const { name, shape } of weights) shapes.set(name, shape);
  const { metadata } = gguf;
  const { architecture, fields } = ggufFields({ path, metadata, shapeOf: (name) => shapes.get(name) });
  const config = readConfig(fields);
  return { config, names: ggufNames(architecture, config) };
}

async function readHubConfig(folder: string): Promise<ConstructorParameters<typeof ConfigFields>> {
  const path = join(folder, "config.json");
  return [path, await readJsonFile(path)];
}
