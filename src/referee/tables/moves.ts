/** Rows of operators that move bytes or fill tensors with constants. */
import * as elementwise from "../elementwise.js";
import * as moves from "../moves.js";
import * as selections from "../selections.js";
import { inPlace, moved, type OperatorRows } from "./row.js";

const copy = moved("self", "the elements of self", moves.copied);
const view = moved("self size", "the elements of self in another shape", moves.viewed);
const range = moved("start end step", "start + i * step, where that is an exact integer", elementwise.range);
const zeros = moved("size", "zeros", selections.zerosOf);
/** Rows of operators that move bytes or fill tensors with constants. */
export const MOVES: OperatorRows = {
  "aten::masked_fill.Scalar": inPlace(
    moved("self mask value", "value, rounded, where the mask holds, else self", elementwise.masked),
  ),
  "aten::where.self": moved(
    "condition self other",
    "self where the condition holds, else other",
    selections.where,
  ),
  "aten::view": view,
  "aten::_unsafe_view": view,
  "aten::reshape": { ...view, parameters: "self shape" },
  "aten::expand": moved("self size", "dimensions of size 1 repeated", moves.expanded),
  "aten::t": moved("self", "dimensions reversed", moves.reversedDims),
  "aten::transpose.int": moved("self dim0 dim1", "two dimensions exchanged", moves.exchanged),
  "aten::permute": moved("self dims", "dimensions in another order", moves.permuted),
  "aten::unsqueeze": moved("self dim", "a further dimension of size 1", moves.unsqueeze),
  "aten::squeeze": moved("self", "without dimensions of size 1", moves.squeeze),
  "aten::squeeze.dim": moved("self dim", "without a dimension of size 1", moves.squeeze),
  "aten::squeeze.dims": moved("self dim", "without dimensions of size 1", moves.squeeze),
  "aten::detach": copy,
  "aten::alias": copy,
  "aten::clone": copy,
  "aten::contiguous": copy,
  "aten::lift_fresh": copy,
  "aten::slice.Tensor": moved("self dim start end step", "a part along a dimension", moves.sliced),
  "aten::select.int": moved("self dim index", "one index of a dimension", moves.selected),
  "aten::slice_backward": moved(
    "grad_output input_sizes dim start end step",
    "zeros around the gradient",
    moves.sliceBackward,
  ),
  "aten::select_backward": moved(
    "grad_output input_sizes dim index",
    "zeros around the gradient",
    moves.selectBackward,
  ),
  "aten::split.Tensor": moved("self split_size dim", "parts along a dimension", moves.split),
  "aten::split_with_sizes": moved("self split_sizes dim", "parts along a dimension", moves.splitWithSizes),
  "aten::unbind.int": moved("self dim", "each index of a dimension", moves.unbound),
  "aten::cat": moved("tensors dim", "tensors one after the other", moves.concatenated),
  "aten::stack": moved("tensors dim", "tensors along a further dimension", moves.stack),
  "aten::embedding": moved(
    "weight indices padding_idx scale_grad_by_freq sparse",
    "rows of weight",
    selections.embedded,
  ),
  "aten::index_select": moved("self dim index", "slices of self", selections.indexSelected),
  "aten::tril": moved(
    "self diagonal",
    "the lower triangle",
    selections.triangle((column, row, k) => column - row <= k),
  ),
  "aten::triu": moved(
    "self diagonal",
    "the upper triangle",
    selections.triangle((column, row, k) => column - row >= k),
  ),
  "aten::flip": moved("self dims", "dimensions in the other order", moves.flip),
  "aten::arange": { ...range, parameters: "end" },
  "aten::arange.start": range,
  "aten::arange.start_step": range,
  "aten::zeros": zeros,
  "aten::ones": moved("size", "ones", elementwise.fillModel(elementwise.bySize)),
  "aten::full": moved(
    "size fill_value",
    "a number, rounded",
    elementwise.fillModel(elementwise.bySize, "fill_value"),
  ),
  "aten::new_zeros": { ...zeros, parameters: "self size" },
  "aten::zeros_like": moved("self", "zeros", selections.zerosLike),
  "aten::zero_": moved("self", "zeros", selections.zerosLike),
  "aten::ones_like": moved("self", "ones", elementwise.fillModel(elementwise.likeSelf)),
  "aten::full_like": moved(
    "self fill_value",
    "a number, rounded",
    elementwise.fillModel(elementwise.likeSelf, "fill_value"),
  ),
  "aten::fill_.Scalar": moved(
    "self value",
    "a number, rounded",
    elementwise.fillModel(elementwise.likeSelf, "value"),
  ),
};
