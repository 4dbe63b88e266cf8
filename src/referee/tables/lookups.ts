/** Rows of operators that look elements up, and of their gradients. */
import * as lookups from "../lookups.js";
import { isComparedTopk, topk } from "../topk.js";
import { computeRow, moveRow, type OperatorRows, withInPlaceVariant, withWitness } from "./row.js";

/** Rows of operators that look elements up, and of their gradients. */
export const LOOKUPS: OperatorRows = {
  "aten::embedding_dense_backward": withWitness(
    computeRow(
      "grad_output indices num_weights padding_idx scale_grad_by_freq",
      "sums of rows in f32: 32 at a time, or in runs of 10 if there are more than 3072 indices",
      lookups.embeddingBackward,
    ),
    "18 gradients of 16 to 4096 rows of 8 to 768 elements in f32, bf16 and f16",
  ),
  "aten::gather": moveRow("self dim index", "elements of self along a dimension", lookups.gather),
  "aten::index.Tensor": moveRow(
    "self indices",
    "slices of self by one tensor of indices",
    lookups.indexByTensor,
  ),
  "aten::index_put": withInPlaceVariant(
    withWitness(
      computeRow(
        "self indices values accumulate",
        "sums of rows of up to 32 elements in f32, in order, then self; rounded once",
        lookups.indexPut,
      ),
      "500 rows of 10 elements in f32, bf16 and f16, added to 64",
    ),
  ),
  "aten::topk": {
    ...withWitness(
      computeRow(
        "self k dim largest sorted",
        "the k largest elements; equal ones in the order of a bitonic sort of 32",
        topk,
      ),
      "the 5 largest of 100 elements in f32, bf16 and f16, 64 times each",
    ),
    isCompared: isComparedTopk,
  },
  "aten::argmax": moveRow("self dim keepdim", "the first index of the largest element", lookups.argmax),
};
