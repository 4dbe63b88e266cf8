/** Calls of layers that return their norm's result. */
import type { ProcessGroup } from "../collectives/group.js";
import { boolean, optionsOf } from "../options.js";
import { differentiableOne } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { LINEAR_CALL, type LinearCall } from "./linear/parts.js";

/** Options of one call of a layer that also returns its norm's result. */
export interface NormedCall extends LinearCall {
  /**
   * Whether the norm's result has the rows of all ranks, with `sequenceParallel`. Its gradient is then summed over the ranks, and
   * each gets its rows of the sum. Default false: this rank's rows.
   */
  readonly returnLayernormOutputGathered?: boolean | undefined;
}

/** The additional results of a layer. */
export interface ReturnedResults {
  /** Whether the second result is the norm's result. */
  readonly returnsNorm?: boolean;
  /** Whether the bias of the last product is returned instead of added. */
  readonly returnsBias?: boolean;
}

const checkCall = optionsOf<NormedCall>({ ...LINEAR_CALL, returnLayernormOutputGathered: boolean }, "call");

/** The options of a call, checked. */
interface CheckedCall {
  readonly linearCall: LinearCall;
  /** Returns the norm's result as the caller gets it. */
  readonly toReturnedNorm: (normed: Variable) => Variable;
}

/** Checks the options of a call. `group` has the ranks that have other rows of the norm's result, if there are any. */
export function normedCallOf(caller: string, call: NormedCall, group: ProcessGroup | undefined): CheckedCall {
  const { returnLayernormOutputGathered = false, ...linearCall } = checkCall(caller, call);
  const gathers = returnLayernormOutputGathered && group;
  return { linearCall, toReturnedNorm: (normed) => (gathers ? allRows(normed, group) : normed) };
}

/** Returns the rows of all ranks. The gradient is the sum over the ranks of this rank's rows. */
function allRows(x: Variable, group: ProcessGroup): Variable {
  return differentiableOne([x], () => ({
    result: group.allGather(wideOf("the result of a norm", x.value)),
    backward: (grad) => [group.reduceScatter(wideOf("the gradient of a norm", grad))],
  }));
}
