/** The TABLE of families. */
import { FileError } from "../../errors.js";
import { describe } from "../../options.js";
import { attentionConfig, chosenWindow, denseConfig, type Family } from "./family.js";

/** Llama and the models that have its architecture, such as SmolLM2. */
const LLAMA: Family = {
  modelType: "llama",
  layer: (fields) => {
    const bias = fields.flag("attention_bias", false);
    return {
      attention: attentionConfig(fields, { inputBias: bias, outputBias: bias }),
      feedForward: denseConfig(fields, fields.flag("mlp_bias", false)),
    };
  },
};

/** Llama with a window of keys in every layer, and without biases. */
const MISTRAL: Family = {
  modelType: "mistral",
  layer: (fields) => {
    const window =
      fields.value("sliding_window") === undefined ? undefined : fields.integer("sliding_window");
    return {
      attention: attentionConfig(fields, { inputBias: false, outputBias: false, window }),
      feedForward: denseConfig(fields, false),
    };
  },
};

/** Qwen2 and Qwen2.5: queries, keys and values have biases. */
const QWEN2: Family = {
  modelType: "qwen2",
  layer: (fields, index) => ({
    attention: attentionConfig(fields, {
      inputBias: true,
      outputBias: false,
      window: chosenWindow(fields, index),
    }),
    feedForward: denseConfig(fields, false),
  }),
};

/** Qwen3: the heads of queries and keys are normalized. */
const QWEN3: Family = {
  modelType: "qwen3",
  layer: (fields, index) => {
    const bias = fields.flag("attention_bias", false);
    return {
      attention: attentionConfig(fields, {
        inputBias: bias,
        outputBias: bias,
        headNorms: true,
        window: chosenWindow(fields, index),
      }),
      feedForward: denseConfig(fields, false),
    };
  },
};

/** The families that `loadCausalLM` reads. */
const FAMILIES: readonly Family[] = [LLAMA, MISTRAL, QWEN2, QWEN3];

/** The family of a configuration. Throws `FileError` for an unknown one. */
export function familyOf(path: string, modelType: unknown): Family {
  const family = FAMILIES.find((each) => each.modelType === modelType);
  if (family) return family;
  const known = FAMILIES.map((each) => each.modelType).join(", ");
  throw new FileError(`${path}: model_type is ${describe(modelType)}; the models that can run are ${known}`);
}
