/** The bias of a linear layer that returns it instead of adding it. */
import { cast } from "../../functional/elementwise.js";
import { concatenate } from "../../functional/layout.js";
import { castTo } from "../../ops/cast/cast.js";
import { differentiableOne } from "../../tape/differentiable.js";
import { wideOf } from "../../tape/value.js";
import type { Variable } from "../../tape/variable.js";
import type { WideDType } from "../../tensor/shape.js";
import type { LinearParts } from "./parts.js";
import { leavesOf } from "./split-parameter.js";

/** Returns the parts of the same layer, which adds no bias. */
export function withoutBias(layer: LinearParts): LinearParts {
  return { ...layer, bias: undefined };
}

/**
 * Returns the bias in the dtype of `out`, the result of the layer, as a variable whose gradient flows to the parameter. If other
 * ranks have other rows of the result, the gradient is summed over the ranks in f32, as it is where the layer adds the bias.
 * The list is empty if the layer has no bias.
 */
export function returnedBias({ bias, parallel }: LinearParts, out: Variable): readonly Variable[] {
  if (!bias) return [];
  const dtype = out.value.dtype as WideDType;
  const leaves = leavesOf(bias);
  const source = leaves.length > 1 ? concatenate(leaves) : (leaves[0] as Variable);
  if (!parallel?.gathers("gradOutput")) return [cast(source, dtype)];
  const returned = differentiableOne([source], () => {
    const value = wideOf("linear: the bias", source.value);
    return {
      result: value.dtype === dtype ? value.reshape(value.shape) : castTo(value, dtype),
      backward: (grad) => {
        const sums = wideOf("linear: the gradient of the bias", grad);
        // the sum over ranks overwrites its operand, so the operand must not be shared with other gradients
        const f32Sums = sums.dtype === "f32" ? sums.clone() : castTo(sums, "f32");
        return [parallel.gradBias(f32Sums, bias.dtype)];
      },
    };
  });
  return [returned];
}
