const ones = moveRow("size", "ones", elementwise.fillModel(selections.shapeFromSize));

/** Rows of operators that move bytes or fill tensors with constants. */
import * as elementwise from "../elementwise.js";
import * as moves from "../moves.js";
import * as selections from "../selections.js";
import { moveRow, type OperatorRows, withInPlaceVariant } from "./row.js";

const copy = moveRow("self", "the elements of self", moves.copy);
const view = moveRow("self size", "the elements of self in another shape", moves.viewModel("size"));
const range = moveRow(
  "start end step",
  "start + i * step, where that is an exact integer",
  elementwise.range,
);
const zeros = moveRow("size", "zeros", selections.zeros);
/** Rows of operators that move bytes or fill tensors with constants. */
export const MOVES: OperatorRows = {
  "aten::masked_fill.Scalar": withInPlaceVariant(
    moveRow("self mask value", "value, rounded, where the mask holds, else self", elementwise.maskedFill),
  ),
  "aten::where.self": moveRow(
    "condition self other",
    "self where the condition holds, else other",
    selections.where,
  ),
  "aten::view": view,
  "aten::_unsafe_view": view,
  "aten::reshape": moveRow("self shape", "the elements of self in another shape", moves.viewModel("shape")),
  "aten::expand": moveRow("self size", "dimensions of size 1 repeated", moves.expand),
  "aten::repeat": moveRow("self repeats", "copies of self side by side", moves.repeat),
  "aten::t": moveRow("self", "dimensions reversed", moves.reverseDims),
  "aten::transpose.int": moveRow("self dim0 dim1", "two dimensions exchanged", moves.transpose),
  "aten::permute": moveRow("self dims", "dimensions in another order", moves.permute),
  "aten::unsqueeze": moveRow("self dim", "a further dimension of size 1", moves.unsqueeze),
  "aten::squeeze": moveRow("self", "without dimensions of size 1", moves.squeeze),
  "aten::squeeze.dim": moveRow("self dim", "without a dimension of size 1", moves.squeeze),
  "aten::squeeze.dims": moveRow("self dim", "without dimensions of size 1", moves.squeeze),
  "aten::detach": copy,
  "aten::alias": copy,
  "aten::clone": copy,
  "aten::contiguous": copy,
  "aten::lift_fresh": copy,
  "aten::slice.Tensor": moveRow("self dim start end step", "a part along a dimension", moves.slice),
  "aten::select.int": moveRow("self dim index", "one index of a dimension", moves.select),
  "aten::slice_backward": moveRow(
    "grad_output input_sizes dim start end step",
    "zeros around the gradient",
    moves.sliceBackward,
  ),
  "aten::select_backward": moveRow(
    "grad_output input_sizes dim index",
    "zeros around the gradient",
    moves.selectBackward,
  ),
  "aten::split.Tensor": moveRow("self split_size dim", "parts along a dimension", moves.split),
  "aten::split_with_sizes": moveRow("self split_sizes dim", "parts along a dimension", moves.splitWithSizes),
  "aten::unbind.int": moveRow("self dim", "each index of a dimension", moves.unbind),
  "aten::cat": moveRow("tensors dim", "tensors one after the other", moves.concatenate),
  "aten::stack": moveRow("tensors dim", "tensors along a further dimension", moves.stack),
  "aten::embedding": moveRow(
    "weight indices padding_idx scale_grad_by_freq sparse",
    "rows of weight",
    selections.embedding,
  ),
  "aten::index_select": moveRow("self dim index", "slices of self", selections.indexSelect),
  "aten::tril": moveRow(
    "self diagonal",
    "the lower triangle",
    selections.triangle((column, row, k) => column - row <= k),
  ),
  "aten::triu": moveRow(
    "self diagonal",
    "the upper triangle",
    selections.triangle((column, row, k) => column - row >= k),
  ),
  "aten::flip": moveRow("self dims", "dimensions in the other order", moves.flip),
  "aten::arange": { ...range, parameters: "end" },
  "aten::arange.start": range,
  "aten::arange.start_step": range,
  "aten::zeros": zeros,
  "aten::ones": ones,
  "aten::full": moveRow(
    "size fill_value",
    "a number, rounded",
    elementwise.fillModel(selections.shapeFromSize, "fill_value"),
  ),
  "aten::new_zeros": { ...zeros, parameters: "self size" },
  "aten::new_ones": { ...ones, parameters: "self size" },
  "aten::zeros_like": moveRow("self", "zeros", selections.zerosLike),
  "aten::zero_": moveRow("self", "zeros", selections.zerosLike),
  "aten::ones_like": moveRow("self", "ones", elementwise.fillModel(elementwise.shapeFromSelf)),
  "aten::full_like": moveRow(
    "self fill_value",
    "a number, rounded",
    elementwise.fillModel(elementwise.shapeFromSelf, "fill_value"),
  ),
  "aten::fill_.Scalar": moveRow(
    "self value",
    "a number, rounded",
    elementwise.fillModel(elementwise.shapeFromSelf, "value"),
  ),
};
