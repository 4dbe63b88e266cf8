/** The entry point `lockstep/models`: language models of other libraries' files, for hosts with a file system. */
export { type CacheOptions, CausalLM, type CausalLMCall } from "./causal-lm.js";
export type {
  AttentionConfig,
  CausalLMConfig,
  DecoderLayerConfig,
  DenseConfig,
  ExpertsConfig,
  FeedForwardConfig,
  RotaryConfig,
} from "./config/config.js";
export { type LoadCausalLMOptions, loadCausalLM } from "./load-causal-lm.js";
export type { ChatMessage, ChatTemplateOptions } from "./tokenizer/chat.js";
export { DecodeStream } from "./tokenizer/decoder.js";
export { loadTokenizer } from "./tokenizer/load.js";
export { type DecodeOptions, type EncodeOptions, Tokenizer } from "./tokenizer/tokenizer.js";
