export { type AttentionOptions, dotProductAttention } from "./attention.js";
export { activation, add, gated, multiply, reshape, sigmoid } from "./elementwise.js";
export { embedding } from "./embedding.js";
export { type CrossEntropyLossOptions, crossEntropyLoss, mseLoss } from "./loss.js";
