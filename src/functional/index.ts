export { allToAll, type ExchangedRows } from "./all-to-all.js";
export { type AttentionOptions, dotProductAttention } from "./attention.js";
export { attention, type BlockwiseAttentionOptions } from "./blockwise-attention.js";
export type { ContextExchange } from "./context-parallel.js";
export { dropout } from "./dropout.js";

export {
  activation,
  add,
  cast,
  divide,
  exp,
  type GatedForm,
  gated,
  multiply,
  rsqrt,
  sigmoid,
  sqrtSoftplus,
  where,
} from "./elementwise.js";

export { embedding } from "./embedding.js";
export { concatenate, permute, reshape, slice, split, transpose } from "./layout.js";
export { type CrossEntropyLossOptions, crossEntropyLoss, mseLoss } from "./loss.js";
export {
  moeSortChunksByIndex,
  moeSortChunksByIndexWithProbs,
  type PaddedRows,
  padding,
  type SortedChunksWithProbs,
  unpadding,
} from "./moe-chunks.js";
export {
  type MoePermuteOptions,
  type MoeUnpermuteOptions,
  moePermute,
  moePermuteWithProbs,
  moeUnpermute,
  type PermutedTokens,
  type PermutedTokensWithProbs,
} from "./moe-permute.js";
export { rotaryEmbedding } from "./rotary-embedding.js";
export {
  type AuxLossOptions,
  type AuxScoreOptions,
  type AuxScores,
  fusedComputeScoreForMoeAuxLoss,
  fusedMoeAuxLoss,
  fusedTopkWithScoreFunction,
  type RoutedTokens,
  type RouterOptions,
  type RouterResult,
  type RouterScoreFunction,
} from "./router.js";
export { cumsum, gather, type SoftmaxDimension, softmax } from "./rows.js";
export { expand, mean, sum } from "./sum.js";
