/** Rows of `scaled_dot_product_attention`. */
import { cudnnAttention, isComparedCudnn } from "../attention/cudnn.js";
import { efficientAttention } from "../attention/efficient.js";
import { flashAttention, isComparedFlash } from "../attention/flash.js";
import { hasComparedHeads, readAttention } from "../attention/heads.js";
import { computeRow, type OperatorRows, withWitness } from "./row.js";

const INPUTS =
  "36 calls in bf16 and f16 with heads of 32 to 128 elements, 1 to 1024 queries and 16 to 1024 keys, half of them causal";

/** Rows of `scaled_dot_product_attention`. */
export const ATTENTION: OperatorRows = {
  "aten::_scaled_dot_product_flash_attention": {
    ...withWitness(
      computeRow(
        "query key value dropout_p is_causal return_debug_mask",
        "FlashAttention-2: blocks of keys from the last to the first, in splits that follow from the shape",
        flashAttention,
      ),
      INPUTS,
    ),
    unwritten: 3,
    isCompared: isComparedFlash,
  },
  "aten::_scaled_dot_product_efficient_attention": {
    ...withWitness(
      computeRow(
        "query key value attn_bias compute_log_sumexp dropout_p is_causal",
        "CUTLASS's attention: blocks of keys from the first to the last, with 8 products in a step of the tensor core",
        efficientAttention,
      ),
      INPUTS,
    ),
    unwritten: 2,
    isCompared: (call) => hasComparedHeads(readAttention(call)),
  },
  "aten::_scaled_dot_product_cudnn_attention": {
    ...withWitness(
      computeRow(
        "query key value attn_bias compute_log_sumexp dropout_p is_causal return_debug_mask",
        "cuDNN's attention: blocks of 128 keys from the first to the last",
        cudnnAttention,
      ),
      INPUTS,
    ),
    unwritten: 2,
    isCompared: isComparedCudnn,
  },
};
