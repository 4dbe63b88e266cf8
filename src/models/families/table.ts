/** The TABLE of families. */
import { FileError } from "../../errors.js";
import { describe } from "../../options.js";
import { DEEPSEEK_V3 } from "./deepseek-v3.js";
import { attentionConfig, chosenWindow, denseConfig, type Family, slidingWindow } from "./family.js";
import { GEMMA3 } from "./gemma3.js";
import { GPT_OSS } from "./gpt-oss.js";

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
  layer: (fields) => ({
    attention: attentionConfig(fields, {
      inputBias: false,
      outputBias: false,
      window: slidingWindow(fields),
    }),
    feedForward: denseConfig(fields, false),
  }),
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
        defaultHeadDim: 128,
        window: chosenWindow(fields, index),
      }),
      feedForward: denseConfig(fields, false),
    };
  },
};

/** Qwen3 with experts in some layers or all. If there is a window, all layers have it. */
const QWEN3_MOE: Family = {
  modelType: "qwen3_moe",
  layer: (fields, index) => {
    const bias = fields.flag("attention_bias", false);
    const isDense =
      fields.integers("mlp_only_layers").includes(index) ||
      (index + 1) % fields.integer("decoder_sparse_step", 1) !== 0;
    // files of transformers 5 have the second name
    const count = fields.integer(
      fields.value("num_experts") === undefined ? "num_local_experts" : "num_experts",
    );
    const topk = fields.integer("num_experts_per_tok");
    if (topk > count) throw fields.refuse("num_experts_per_tok", `at most num_experts, ${count}`);
    return {
      attention: attentionConfig(fields, {
        inputBias: bias,
        outputBias: bias,
        headNorms: true,
        window: fields.flag("use_sliding_window", false) ? slidingWindow(fields) : undefined,
      }),
      feedForward: isDense
        ? denseConfig(fields, false)
        : {
            kind: "experts",
            count,
            expert: denseConfig(fields, false, "moe_intermediate_size"),
            router: {
              ...{ name: "gate", topk, scoreFunction: "softmax", bias: false, correction: false },
              // probabilities of the chosen experts, divided by their sum, are the softmax over the chosen experts only
              usePreSoftmax: !fields.flag("norm_topk_prob", false),
            },
          },
    };
  },
};

/** The families that `loadCausalLM` reads. */
const FAMILIES: readonly Family[] = [
  ...[LLAMA, MISTRAL, QWEN2, QWEN3, QWEN3_MOE],
  ...[GEMMA3, GPT_OSS, DEEPSEEK_V3],
];

/** The family of a configuration. Throws `FileError` for an unknown one. */
export function familyOf(path: string, modelType: unknown): Family {
  const family = FAMILIES.find((each) => each.modelType === modelType);
  if (family) return family;
  const supported = FAMILIES.map((each) => each.modelType).join(", ");
  throw new FileError(
    `${path}: model_type is ${describe(modelType)}; the models that can run are ${supported}`,
  );
}
