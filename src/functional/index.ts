export { type AttentionOptions, dotProductAttention } from "./attention.js";
export { activation, add, gated, reshape } from "./elementwise.js";
export { embedding } from "./embedding.js";
export { type CrossEntropyLossOptions, crossEntropyLoss, mseLoss } from "./loss.js";
