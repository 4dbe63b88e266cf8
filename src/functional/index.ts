export { type AttentionOptions, dotProductAttention } from "./attention.js";
export { attention, type BlockwiseAttentionOptions } from "./blockwise-attention.js";
export { activation, add, gated, multiply, reshape, sigmoid } from "./elementwise.js";
export { embedding } from "./embedding.js";
export { type CrossEntropyLossOptions, crossEntropyLoss, mseLoss } from "./loss.js";
