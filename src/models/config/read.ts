/** Reads the configuration of a model. */
import { MAX_LAYERS } from "../../checkpoints/gguf/architectures.js";
import { FileError } from "../../errors.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Family } from "../families/family.js";
import { familyOf } from "../families/table.js";
import type { CausalLMConfig, DecoderLayerConfig } from "./config.js";
import type { ConfigFields } from "./fields.js";

/** The dtypes by their names in configurations. */
const DTYPES: Readonly<Record<string, WideDType>> = { bfloat16: "bf16", float16: "f16", float32: "f32" };

/** The maximum number of experts, summed over all layers. */
const MAX_EXPERTS = 2 ** 16;

/**
 * Reads a configuration with the fields of config.json. Throws `FileError` for a field that is missing or has an invalid value.
 */
export function readConfig(fields: ConfigFields): CausalLMConfig {
  const family = familyOf(fields.path, fields.value("model_type"));
  const count = fields.integer("num_hidden_layers");
  if (count > MAX_LAYERS) throw fields.refuse("num_hidden_layers", `at most ${MAX_LAYERS}`);
  return {
    modelType: family.modelType,
    vocabSize: fields.integer("vocab_size"),
    hiddenSize: fields.integer("hidden_size"),
    maxPositionEmbeddings: fields.integer("max_position_embeddings"),
    rmsNormEps: fields.positiveNumber("rms_norm_eps", 1e-6),
    tieWordEmbeddings: fields.flag("tie_word_embeddings", false),
    dtype: namedDtype(fields.value("dtype") ?? fields.value("torch_dtype")),
    eosTokenIds: fields.integers("eos_token_id"),
    ...family.model?.(fields),
    layers: layersOf(family, fields, count),
  };
}

function layersOf(family: Family, fields: ConfigFields, count: number): readonly DecoderLayerConfig[] {
  const layers = Array.from({ length: count }, (_, index) => family.layer(fields, index));
  const experts = layers.reduce(
    (sum, { feedForward: block }) => sum + ("count" in block ? block.count : 0),
    0,
  );
  if (experts <= MAX_EXPERTS) return layers;
  throw new FileError(`${fields.path}: the layers have ${experts} experts; ${MAX_EXPERTS} are the most`);
}

/** The dtype of a configuration; undefined if its name is absent or unknown. */
function namedDtype(name: unknown): WideDType | undefined {
  const dtype = typeof name === "string" && Object.hasOwn(DTYPES, name) ? DTYPES[name] : undefined;
  return dtype;
}
