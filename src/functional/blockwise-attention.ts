/** Differentiable softmax attention by blocks of keys. */
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError } from "../errors.js";
import { attention as attend, attentionBackward } from "../ops/attention/attention.js";
import { ATTENTION_RULE, type AttentionRuleOptions } from "../ops/attention/options.js";
import { castTo } from "../ops/cast/cast.js";
import { anything, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { type ContextExchange, contextAttention, contextExchange } from "./context-parallel.js";
import { groupOf, processGroup } from "./ranks.js";

/** Options of `functional.attention`. All fields are optional. */
export interface BlockwiseAttentionOptions extends Omit<AttentionRuleOptions, "bias" | "sinks"> {
  /** A wide tensor or variable [1 or B, 1 or H, Sq, Sk] that is added to the scores. Not for "thd". */
  readonly bias?: VariableLike | undefined;
  /** A logit for each head, an f32 tensor or variable [H], that takes a part of each row's probability. */
  readonly sinks?: VariableLike | undefined;
  /**
   * The ranks among which the positions are divided evenly, in order of ranks (context parallelism). Default: this rank has all
   * positions. Not with `mask`, `bias`, lengths and "thd".
   */
  readonly cpGroup?: ProcessGroup | undefined;
  /**
   * How these ranks exchange positions: all gather the keys and values ("all_gather"), neighbours pass them on ("p2p"), or each
   * rank attends from all positions of some heads ("a2a"). Only "a2a" has dropout, ALiBi and windows without the causal mask.
   * Default "p2p".
   */
  readonly cpCommType?: ContextExchange | undefined;
}

const checkOptions = optionsOf<BlockwiseAttentionOptions>({
  ...ATTENTION_RULE,
  bias: anything,
  sinks: anything,
  cpGroup: processGroup,
  cpCommType: contextExchange,
});

/**
 * Returns softmax(q·kᵀ * scale)·v of each head, in the shape of q with the last dimension of v. See the operation `attention`,
 * whose options it takes; `bias` and `sinks` may be variables. The scores are not stored: the backward pass computes them again.
 * `attentionBackward` computes the gradients.
 *
 * @throws `DTypeError` for tensors that are not of one wide dtype, or an option of another dtype, `ShapeError` for tensors whose
 * shapes do not fit, `ArgumentError` for an invalid option value, options that do not go together, an argument that is not a
 * tensor and tensors on different backends, `UnsupportedError` if the datapath or the backend has no attention, `DisposedError`
 * for a disposed tensor.
 */
export function attention(
  q: VariableLike,
  k: VariableLike,
  v: VariableLike,
  options: BlockwiseAttentionOptions = {},
): Variable {
  const { bias, sinks, cpGroup, cpCommType: exchange = "p2p", ...rule } = checkOptions("attention", options);
  const inputs = [
    variableOf("attention", "q", q),
    variableOf("attention", "k", k),
    variableOf("attention", "v", v),
  ] as const;
  const biasVariable = bias === undefined ? undefined : variableOf("attention", "bias", bias);
  const logits = sinks === undefined ? undefined : variableOf("attention", "sinks", sinks);
  const group = groupOf("attention", inputs[0].backend, { group: cpGroup });
  if (group) {
    if (biasVariable)
      throw new ArgumentError(
        "attention: cpGroup divides positions, and bias has all pairs; leave one of them out",
      );
    const variables = { q: inputs[0], k: inputs[1], v: inputs[2], sinks: logits };
    return contextAttention("attention", variables, rule, {
      group,
      exchange,
      wholeAttention: ({ q, k, v, sinks: ofHeads }, part) => attention(q, k, v, { ...part, sinks: ofHeads }),
    });
  }
  const optionalInputs = [biasVariable, logits].filter((each) => each !== undefined);
  return differentiableOne([...inputs, ...optionalInputs], () => {
    const [queries, keys, values] = inputs.map((input, i) =>
      wideOf(`attention: ${"qkv"[i]}`, input.value),
    ) as [ReturnType<typeof wideOf>, ReturnType<typeof wideOf>, ReturnType<typeof wideOf>];
    const options = {
      ...rule,
      bias: biasVariable && wideOf("attention: bias", biasVariable.value),
      sinks: logits && wideOf("attention: sinks", logits.value),
    };
    const { out, lse } = attend(queries, keys, values, options);
    return {
      result: out,
      saved: [lse],
      backward: (grad) => {
        const gradOutput = castTo(wideOf("attention: the gradient", grad), out.dtype);
        const biasGrad = biasVariable?.requiresGrad ?? false;
        const grads = attentionBackward(gradOutput, queries, keys, values, out, lse, {
          ...options,
          biasGrad,
        });
        const { dq, dk, dv, dbias, dsinks } = grads;
        return [dq, dk, dv, ...(biasVariable ? [dbias] : []), ...(logits ? [dsinks] : [])];
      },
    };
  });
}
