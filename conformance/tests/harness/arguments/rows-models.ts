/** Rows of language models and their tokenizers. */
import { CausalLM } from "../../../../src/models/causal-lm.js";
import type { CausalLMConfig } from "../../../../src/models/index.js";
import { normalInit } from "../../../../src/modules/parameter.js";
import { MXFP8BlockScaling } from "../../../../src/recipes/block-scaled.js";
import type { Rows } from "./row.js";
import type { CheckpointFolder } from "./rows-files.js";
import type { World } from "./world.js";

const CONFIG: CausalLMConfig = {
  ...{ modelType: "llama", vocabSize: 8, hiddenSize: 16, maxPositionEmbeddings: 8, rmsNormEps: 1e-5 },
  ...{ tieWordEmbeddings: false, eosTokenIds: [] },
  layers: [
    {
      attention: {
        ...{ heads: 2, keyValueHeads: 1, headDim: 8, inputBias: false, outputBias: false },
        ...{ headNorms: false, rotary: { dim: 8, base: 10000 } },
      },
      feedForward: { kind: "dense", intermediateSize: 16, activation: "silu", bias: false },
    },
  ],
};

/** A model that is not trained, so that it may have a cache outside of `noGrad`. */
function createModel(w: World): CausalLM {
  const options = { config: CONFIG, dtype: "bf16", random: w.random, recipe: undefined } as const;
  const causalLM = w.own(CausalLM.of(w.backend, { ...options, initMethod: normalInit(0.02) }));
  for (const parameter of causalLM.parameters()) parameter.requiresGrad = false;
  return causalLM;
}

const DRAW = { seed: 1n, offset: 2n };
const MESSAGES = [{ role: "user", content: "hi" }];

export function modelRows(folder: CheckpointFolder): Rows {
  const onTokenizer = { self: () => folder.tokenizer, isUnbound: true, survivesDispose: true } as const;
  return {
    loadCausalLM: {
      calls: [
        (w) => [
          w.backend,
          folder.languageModel,
          { dtype: "bf16", weights: "ct-nvfp4", recipe: new MXFP8BlockScaling() },
        ],
      ],
      isSlow: true,
    },
    perplexity: {
      calls: [
        (w) => [
          w.backend,
          folder.languageModel,
          [1, 2, 3],
          {
            ...{ context: 2, stride: 1, dtype: "bf16", onProgress: () => {} },
            variants: [{ weights: "ct-nvfp4", recipe: new MXFP8BlockScaling() }],
          },
        ],
      ],
      numbers: {
        ...{ "tokens.0": "index", "tokens.1": "index", "tokens.2": "index" },
        ...{ "options.context": "count", "options.stride": "count" },
      },
      isSlow: true,
    },
    "CausalLM.forward": {
      self: createModel,
      calls: [
        (w) => {
          const inferenceParams = w.own(createModel(w).createCache());
          inferenceParams.preStep(new Map([["a", 2]]));
          return [w.tensor("i32", [1, 2]), { inferenceParams, logitsToKeep: 1, isFirstMicrobatch: true }];
        },
      ],
      numbers: { "call.logitsToKeep": "count" },
    },
    "CausalLM.generate": {
      self: createModel,
      isUnbound: true,
      survivesDispose: true,
      isSlow: true,
      calls: [
        () => [
          [[1, 2]],
          {
            ...{ maxNewTokens: 2, eosTokenIds: [3], chunkSize: 4, pageSize: 4, cacheFormat: "e4m3" as const },
            chooseTokens: () => [1],
          },
        ],
      ],
      numbers: {
        ...Object.fromEntries(
          ["maxNewTokens", "chunkSize", "pageSize"].map((name) => [`options.${name}`, "count" as const]),
        ),
        "options.eosTokenIds.0": "index",
        "prompts.0.0": "index",
        "prompts.0.1": "index",
      },
    },
    "CausalLM.createCache": {
      self: createModel,
      isUnbound: true,
      survivesDispose: true,
      numbers: Object.fromEntries(
        ["maxBatchSize", "maxSequenceLength", "pageSize", "totalNumPages"].map((name) => [
          `options.${name}`,
          "count" as const,
        ]),
      ),
      calls: [
        () => [
          {
            ...{ maxBatchSize: 2, maxSequenceLength: 8, isPaged: true, pageSize: 4, totalNumPages: 3 },
            format: "e4m3" as const,
          },
        ],
      ],
    },
    sample: {
      calls: [
        (w) => [
          w.tensor("f32", [2, 8]),
          { temperature: 1, topK: 3, topP: 0.5, draws: [DRAW, { seed: 3n, offset: 4n }] },
        ],
      ],
      numbers: { "options.temperature": "atLeastZero", "options.topK": "count", "options.topP": "above" },
    },
    loadTokenizer: { calls: [() => [folder.languageModel]], isSlow: true },
    "Tokenizer.encode": {
      ...onTokenizer,
      calls: [() => ["text", { addSpecialTokens: false }]],
      exemptions: { text: "a character without a token is refused" },
    },
    "Tokenizer.decode": {
      ...onTokenizer,
      calls: [() => [[1, 2], { skipSpecialTokens: true }]],
      isSlow: true,
    },
    "Tokenizer.decodeStream": { ...onTokenizer, calls: [() => [{ skipSpecialTokens: true }]] },
    "Tokenizer.applyChatTemplate": {
      ...onTokenizer,
      calls: [
        () => [MESSAGES, { addGenerationPrompt: false, template: "default", variables: { tools: [] } }],
      ],
      exemptions: { "options.variables": "a template may have any variables" },
    },
    "DecodeStream.step": {
      ...onTokenizer,
      self: () => folder.tokenizer.decodeStream(),
      calls: [() => [3]],
      numbers: { id: "index" },
    },
  };
}
