/** The entry point `lockstep/models`: language models of other libraries' files, for hosts with a file system. */
export type { WideTarget } from "../checkpoints/convert/dequantize/round.js";
export type { LockstepTarget } from "../checkpoints/convert/targets/lockstep.js";
export type { ConversionTarget } from "../checkpoints/convert/targets/named.js";
export type { DialectTarget } from "../checkpoints/convert/targets/table.js";
export type { RouterScoreFunction } from "../functional/router.js";
export type { CacheOptions, CacheScales } from "./cache-options.js";
export { CausalLM, type CausalLMCall } from "./causal-lm.js";
export type {
  AttentionConfig,
  CausalLMConfig,
  DecoderLayerConfig,
  DenseConfig,
  ExpertsConfig,
  FeedForwardConfig,
  JoinedConfig,
  LatentConfig,
  RotaryConfig,
  RouterConfig,
} from "./config/config.js";
export type { ChooseTokens, GenerateOptions } from "./generate.js";
export { loadCausalLM } from "./load-causal-lm.js";
export type { LoadCausalLMOptions, WeightForm } from "./load-files.js";
export {
  type ModelPerplexity,
  type PerplexityComparison,
  type PerplexityOptions,
  type PerplexityReport,
  type PerplexityVariant,
  perplexity,
} from "./perplexity/perplexity.js";
export type { PerplexityProgress } from "./perplexity/windows.js";
export { type SampleOptions, type SamplingOptions, sample } from "./sampling.js";
export type { ChatMessage, ChatTemplateOptions } from "./tokenizer/chat.js";
export { DecodeStream } from "./tokenizer/decoder.js";
export { loadTokenizer } from "./tokenizer/load.js";
export { type DecodeOptions, type EncodeOptions, Tokenizer } from "./tokenizer/tokenizer.js";
