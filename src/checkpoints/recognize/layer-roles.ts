/** Which unquantized weights a conversion quantizes: those of linear layers, unless the user names others. */
import { tensorDType } from "../../io/dtypes.js";
import { isWide } from "../../tensor/shape.js";
import type { StoredTensor } from "../stored/tensors.js";

/** Layers that stay: embeddings, the output layer, and what routes tokens to experts. */
const STAYS =
  /(^|\.)(lm_head|embed_out|output|embed\w*|\w*embeddings?|wte|wpe|tok_embeddings|\w*_embd|gate|router|\w*_gate|score|classifier)\.weight$/;
/** In GGUF: the weights of layers, and those of them that stay, as llama.cpp leaves them. */
const GGML_LAYER = /(^|\.)blk\.\d+\./;
const GGML_STAYS =
  /\.(\w*_norm\w*|ffn_gate_inp\w*|\w*_router|ssm_conv1d\w*|shortconv\.conv|\w*_embd|time_mix_\w+)\.weight$/;
/** Layers that take indices, not vectors: their weights are no matrices of products. */
const EMBEDS = /(^|\.)(embed_tokens|\w*embeddings?|wte|wpe|\w*_embd)\.weight$/;

const WEIGHT = /\.weight$/;

/** Whether a tensor is a matrix, or several, of a type that can be quantized. */
export function isQuantizable({ entry: { dtype, shape } }: StoredTensor): boolean {
  const type = tensorDType(dtype);
  return type !== undefined && isWide(type) && shape.length >= 2;
}

/** Whether the rule quantizes a tensor: a matrix that is the weight of a linear layer, or in GGUF those of experts too. */
export function isLinear(stored: StoredTensor): boolean {
  const { name, shape } = stored.entry;
  if (GGML_LAYER.test(name)) return isQuantizable(stored) && WEIGHT.test(name) && !GGML_STAYS.test(name);
  return isQuantizable(stored) && shape.length === 2 && WEIGHT.test(name) && !STAYS.test(name);
}

/** Whether a tensor is the weight of a layer that a configuration has to name where it is not quantized. */
export function isLayer(stored: StoredTensor): boolean {
  return isQuantizable(stored) && WEIGHT.test(stored.entry.name);
}

/** Whether a tensor is an embedding. */
export function isEmbedding({ entry: { name } }: StoredTensor): boolean {
  return EMBEDS.test(name);
}
