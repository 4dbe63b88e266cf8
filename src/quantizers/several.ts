/** Quantization of several tensors in one call. */
import { ArgumentError, ShapeError } from "../errors.js";
import { anyListOf, instance, integer } from "../options.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix, storageBits, type WideDType } from "../tensor/shape.js";
import { type Tensor, VIEW_ALIGNMENT } from "../tensor/tensor.js";
import { Quantizer } from "./quantizer.js";

const quantizerList = anyListOf(instance(Quantizer, "a quantizer"));
const tensorList = anyListOf(requireWide);
const splitList = anyListOf(integer(0));

/**
 * Quantizes each tensor by the quantizer at the same index of the list. The results are bitwise equal to the results of
 * `quantize`. Both backends run one quantization after the other.
 *
 * @throws `ArgumentError` for an argument that is not a list, another number of quantizers than tensors, or an object that is not
 * a quantizer, `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for a shape that the format's blocks do not
 * divide, `DisposedError` for a disposed tensor. After an error no result is left.
 */
export function multiQuantize(
  tensors: readonly Tensor[],
  quantizers: readonly Quantizer[],
): readonly QuantizedTensor[] {
  const ownTensors = tensorList("multiQuantize", "tensors", tensors) as readonly Tensor<WideDType>[];
  return quantizeEach("multiQuantize", ownTensors, quantizers);
}

/**
 * Divides the rows of `x` (all leading dimensions flattened) and quantizes each part [rows, K] by the quantizer at the same index
 * of the list. `splits` has the numbers of rows. The results are bitwise equal to `quantize` for a copy of each part: a
 * per-tensor scale covers one part, and blocks begin at its first row. Both backends run one quantization after the other.
 *
 * @throws `ArgumentError` for an argument that is not a list, another number of quantizers than splits, a split that is not an
 * integer from 0, or an object that is not a quantizer, `ShapeError` for splits that do not add up to the rows of `x` or a shape
 * that the format's blocks do not divide, `DTypeError` for a tensor that is not f32, bf16 or f16, `DisposedError` for a disposed
 * tensor. After an error no result is left.
 */
export function splitQuantize(
  x: Tensor,
  splits: readonly number[],
  quantizers: readonly Quantizer[],
): readonly QuantizedTensor[] {
  const values = requireWide("splitQuantize", "x", x);
  const counts = splitList("splitQuantize", "splits", splits) as readonly number[];
  const [rows, columns] = asMatrix(values.shape);
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total !== rows)
    throw new ShapeError(
      `splitQuantize: splits add up to ${total}, and x [${values.shape}] has ${rows} rows`,
    );
  using scope = new Scope();
  let first = 0;
  const parts = counts.map((count) => {
    const part = rowsOf(values, first * columns, [count, columns]);
    first += count;
    return part;
  });
  return quantizeEach("splitQuantize", parts, quantizers).map((each) => scope.keep(each));
}

/** Returns elements of x from `first` on as a matrix: a view if it would be aligned, else a copy. */
function rowsOf(x: Tensor<WideDType>, first: number, shape: readonly [number, number]): Tensor<WideDType> {
  const isAligned = (first * storageBits(x.dtype)) % (8 * VIEW_ALIGNMENT) === 0;
  return isAligned ? x.view(first, shape) : x.slice(first, shape);
}

function quantizeEach(
  caller: string,
  tensors: readonly Tensor<WideDType>[],
  quantizers: readonly Quantizer[],
): readonly QuantizedTensor[] {
  const ownQuantizers = quantizerList(caller, "quantizers", quantizers) as readonly Quantizer[];
  if (ownQuantizers.length !== tensors.length)
    throw new ArgumentError(
      `${caller}: there are ${ownQuantizers.length} quantizers for ${tensors.length} tensors; give one for each`,
    );
  using scope = new Scope();
  const results = tensors.map((x, i) => (ownQuantizers[i] as Quantizer).quantize(x));
  return results.map((each) => scope.keep(each));
}
