export { type AttentionOptions, dotProductAttention } from "./attention.js";
export { attention, type BlockwiseAttentionOptions } from "./blockwise-attention.js";
export { activation, add, cast, divide, exp, gated, multiply, rsqrt, sigmoid, where } from "./elementwise.js";
export { embedding } from "./embedding.js";
export { concatenate, permute, reshape, slice, transpose } from "./layout.js";
export { type CrossEntropyLossOptions, crossEntropyLoss, mseLoss } from "./loss.js";
export { rotaryEmbedding } from "./rotary-embedding.js";
export { expand, mean, sum } from "./sum.js";
