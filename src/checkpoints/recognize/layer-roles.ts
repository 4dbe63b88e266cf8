/** Selects the weights that a conversion quantizes by default: the weights of linear layers. */
import { tensorDType } from "../../io/dtypes.js";
import { isWide } from "../../tensor/shape.js";
import type { StoredTensor } from "../stored/tensors.js";

/** Layers that stay unquantized: embeddings, the output layer, and routers of experts. */
const UNQUANTIZED =
  /(^|\.)(lm_head|embed_out|output|embed\w*|\w*embeddings?|wte|wpe|tok_embeddings|\w*_embd|gate|router|\w*_gate|score|classifier)\.weight$/;
/** GGUF: the weights of layers, and those weights of layers that llama.cpp leaves unquantized. */
const GGML_LAYER = /(^|\.)blk\.\d+\./;
const GGML_UNQUANTIZED =
  /\.(\w*_norm\w*|ffn_gate_inp\w*|\w*_router|ssm_conv1d\w*|shortconv\.conv|\w*_embd|time_mix_\w+)\.weight$/;
/** Embeddings, whose rows are looked up by index. Therefore their weights are not operands of products. */
const EMBEDS = /(^|\.)(embed_tokens|\w*embeddings?|wte|wpe|\w*_embd)\.weight$/;

const WEIGHT = /\.weight$/;

/** Whether a tensor is a matrix, or a stack of matrices, of a type that can be quantized. */
export function isQuantizable({ entry: { dtype, shape } }: StoredTensor): boolean {
  const type = tensorDType(dtype);
  return type !== undefined && isWide(type) && shape.length >= 2;
}

/** Whether a tensor is quantized by default: the matrix of a linear layer, and in GGUF also a stack of experts. */
export function isLinear(tensor: StoredTensor): boolean {
  const { name, shape } = tensor.entry;
  if (GGML_LAYER.test(name))
    return isQuantizable(tensor) && WEIGHT.test(name) && !GGML_UNQUANTIZED.test(name);
  return isQuantizable(tensor) && shape.length === 2 && WEIGHT.test(name) && !UNQUANTIZED.test(name);
}

/** Whether a configuration has to list a tensor as unquantized. */
export function isLayer(tensor: StoredTensor): boolean {
  return isQuantizable(tensor) && WEIGHT.test(tensor.entry.name);
}

/** Whether a tensor is an embedding. */
export function isEmbedding({ entry: { name } }: StoredTensor): boolean {
  return EMBEDS.test(name);
}
