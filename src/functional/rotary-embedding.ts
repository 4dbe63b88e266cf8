/** Differentiable rotary embeddings. */
import {
  ROTARY_OPTIONS,
  type RotaryOptions,
  rotaryEmbedding as rotate,
} from "../ops/rows/rotary-embedding.js";
import { optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { Tensor } from "../tensor/tensor.js";

const checkOptions = optionsOf<RotaryOptions>(ROTARY_OPTIONS);

/**
 * Rotates pairs of elements of each head of x by the angle of its position. See the operation `rotaryEmbedding`. The result has
 * the dtype of x. The gradient of x is the gradient of the result rotated by the negative angles; cos and sin have none.
 *
 * @throws `DTypeError` for x that is not f32, bf16 or f16, cos or sin that is not f32, or positions that are not i32,
 * `ShapeError` for tensors whose shapes do not fit, `ArgumentError` for an invalid option value, options that do not fit the
 * layout, an argument that is not a tensor and tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function rotaryEmbedding(
  x: VariableLike,
  cos: Tensor,
  sin: Tensor,
  options: RotaryOptions = {},
): Variable {
  const rule = checkOptions("rotaryEmbedding", options);
  const source = variableOf("rotaryEmbedding", "x", x);
  return differentiableOne([source], () => {
    const value = wideOf("rotaryEmbedding: x", source.value);
    return {
      result: rotate(value, cos, sin, rule),
      backward: (grad) => [
        rotate(wideOf("rotaryEmbedding: the gradient", grad), cos, sin, {
          ...rule,
          inverse: true,
          outDtype: value.dtype,
        }),
      ],
    };
  });
}
