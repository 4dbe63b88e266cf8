/** Differentiable dropout. */
import { DROPOUT_DRAWS, type DropoutDraws, dropout as dropped } from "../ops/elementwise/dropout.js";
import { optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";

const checkOptions = optionsOf<DropoutDraws>(DROPOUT_DRAWS);

/**
 * Returns x with elements replaced by +0, each with the given probability, and the other elements divided by 1 - probability,
 * in the dtype of x. See the operation `dropout`. The backward pass repeats the draws: the gradient is the dropout of the
 * gradient of the result. Leave the call out where a model is evaluated, and use each seed and offset once in a run.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an invalid option value, or an argument
 * that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function dropout(x: VariableLike, options: DropoutDraws): Variable {
  const draws = checkOptions("dropout", options);
  const source = variableOf("dropout", "x", x);
  return differentiableOne([source], () => ({
    result: dropped(wideOf("dropout: x", source.value), draws),
    backward: (grad) => [dropped(wideOf("dropout: the gradient", grad), draws)],
  }));
}
