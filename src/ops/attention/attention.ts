/** Softmax attention and its gradient (numerics.md §10). */
import type { AttentionPlan, AttentionRule } from "../../backends/ops/attention.js";
import { ArgumentError, DTypeError } from "../../errors.js";
import { requireF32, requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { isTensor, Tensor } from "../../tensor/tensor.js";
import { setZero } from "../create.js";
import { commonBackend, execute, requireBackendOf, requireShape } from "../execute.js";
import {
  type AttentionBackwardOptions,
  type AttentionOptions,
  type AttentionRuleOptions,
  checkBackward,
  checkForward,
} from "./options.js";
import { requireProjections, ruleOf } from "./rule.js";

/** The result of `attention`. */
export interface AttentionResult {
  /** The weighted sums of values, in the shape of q with V elements in place of D. */
  readonly out: Tensor<WideDType>;
  /** The natural logarithm of the sum of exponentials of each row, f32 [B, H, Sq], or [H, T] for "thd". */
  readonly lse: Tensor<"f32">;
  /** The largest logit of each head, f32 [H], if `maxLogits` is set. */
  readonly maxLogits?: Tensor<"f32">;
  /** The plan by which keys were divided. */
  readonly plan: AttentionPlan;
}

/** The result of `attentionBackward`. */
export interface AttentionGradients {
  /** The gradient of q, in its shape. */
  readonly dq: Tensor<WideDType>;
  /** The gradient of k, in its shape. */
  readonly dk: Tensor<WideDType>;
  /** The gradient of v, in its shape. */
  readonly dv: Tensor<WideDType>;
  /** The gradient of the bias, in its shape, if `biasGrad` is set. */
  readonly dbias?: Tensor<WideDType>;
  /** The gradient of the sinks, f32 [H], if there are sinks. */
  readonly dsinks?: Tensor<"f32">;
}

/**
 * Computes softmax(q·kᵀ * scale)·v of each head. q is [B, Sq, H, D], k [B, Sk, G, D], v [B, Sk, G, V] in the order of `layout`,
 * all of one wide dtype; H is a multiple of G, and G heads of keys and values serve H heads of queries. The order of all
 * operations, and what each option does to a score, is in numerics.md §10.
 *
 * The bits of a row depend on its query, its visible keys and values, and the plan, and on nothing else in the call. Hidden
 * keys are not read, so a NaN in one does not matter. A row without visible keys has out 0 and lse -infinity. A NaN among its
 * scores makes a row NaN. Lengths outside the tensors are clamped.
 *
 * @throws `DTypeError` for tensors that are not of one wide dtype, or an option of another dtype, `ShapeError` for tensors whose
 * shapes do not fit, `ArgumentError` for an invalid option value, options that do not go together and tensors on different
 * backends, `UnsupportedError` if the datapath or the backend has no attention, `DisposedError` for a disposed tensor.
 */
export function attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions = {}): AttentionResult {
  const ownOptions = checkForward("attention", options);
  const rule = checkedRule("attention", q, k, v, ownOptions);
  const { backend } = q;
  using scope = new Scope();
  const out = new Tensor(backend, rule.q.dtype, outShape(rule));
  clearUnused(rule, out);
  const lse = new Tensor(backend, "f32", statisticShape(rule));
  const maxLogits = ownOptions.maxLogits ? new Tensor(backend, "f32", [q.shape.at(-2) as number]) : undefined;
  execute(backend, "attention", { ...rule, out, lse, maxLogits });
  const { plan } = rule;
  if (!maxLogits) return { out: scope.keep(out), lse: scope.keep(lse), plan };
  return { out: scope.keep(out), lse: scope.keep(lse), maxLogits: scope.keep(maxLogits), plan };
}

/**
 * Computes the gradients of q, k and v, of the bias if `biasGrad` is set, and of the sinks if there are any. `grad` is the
 * gradient of out; `out` and `lse` are results of `attention`; the options must be the same. The gradients of tokens that belong
 * to no sequence are 0. The result does not depend on the number of threads.
 *
 * @throws `DTypeError` for tensors that are not of one wide dtype, or an option of another dtype, `ShapeError` for tensors whose
 * shapes do not fit, `ArgumentError` for an invalid option value, options that do not go together and tensors on different
 * backends, `UnsupportedError` if the datapath or the backend has no attention, `DisposedError` for a disposed tensor.
 */
export function attentionBackward(
  grad: Tensor,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  out: Tensor,
  lse: Tensor,
  options: AttentionBackwardOptions = {},
): AttentionGradients {
  const projections = requireProjections("attentionBackward", q, k, v);
  const ownOptions = checkBackward("attentionBackward", options);
  const result = requireWide("attentionBackward", "out", out);
  const gradient = requireWide("attentionBackward", "grad", grad);
  const statistics = requireF32("attentionBackward", "lse", lse);
  const backend = commonBackend("attentionBackward", q, k, v, grad, out, lse);
  requireBackendOf("attentionBackward", { backend }, ...tensorsOf(ownOptions));
  const rule = ruleOf("attentionBackward", projections, ownOptions);
  requireShape("attentionBackward", "out", out, outShape(rule));
  requireShape("attentionBackward", "grad", grad, outShape(rule));
  requireShape("attentionBackward", "lse", lse, statisticShape(rule));
  const { dtype } = projections.q;
  if (out.dtype !== dtype || grad.dtype !== dtype)
    throw new DTypeError(
      `attentionBackward: q is ${dtype}, out ${out.dtype} and grad ${grad.dtype}; they must be of one dtype`,
    );
  if (ownOptions.biasGrad && !rule.bias)
    throw new ArgumentError(
      "attentionBackward: biasGrad is set, and there is no bias; give it or leave biasGrad out",
    );
  using scope = new Scope();
  const [dq, dk, dv] = [q, k, v].map(({ shape }) => new Tensor(backend, dtype, shape)) as [
    Tensor<WideDType>,
    Tensor<WideDType>,
    Tensor<WideDType>,
  ];
  clearUnused(rule, dq, dk, dv);
  const dbias =
    ownOptions.biasGrad && rule.bias ? new Tensor(backend, rule.bias.dtype, rule.bias.shape) : undefined;
  const dsinks = rule.sinks && new Tensor(backend, "f32", rule.sinks.shape);
  execute(backend, "attentionBackward", {
    ...rule,
    grad: gradient,
    result,
    lse: statistics,
    dq,
    dk,
    dv,
    dbias,
    dsinks,
  });
  return {
    dq: scope.keep(dq),
    dk: scope.keep(dk),
    dv: scope.keep(dv),
    ...(dbias && { dbias: scope.keep(dbias) }),
    ...(dsinks && { dsinks: scope.keep(dsinks) }),
  };
}

/**
 * @shared Returns the arguments of `attention` for options that `checkForward` has checked. Throws as `attention` does, except
 * `UnsupportedError`.
 */
export function checkedRule(
  op: string,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  options: AttentionOptions,
): AttentionRule {
  const projections = requireProjections(op, q, k, v);
  const backend = commonBackend(op, q, k, v);
  requireBackendOf(op, { backend }, ...tensorsOf(options));
  return ruleOf(op, projections, options);
}

/** Writes +0 to results in which some rows belong to no sequence; the operation writes the other rows. */
function clearUnused(
  { layout, queryLengths, keyLengths }: AttentionRule,
  ...results: readonly Tensor[]
): void {
  if (layout !== "thd" && !queryLengths && !keyLengths) return;
  for (const result of results) setZero(result);
}

/** The tensors among the options. */
function tensorsOf(options: AttentionRuleOptions): readonly Tensor[] {
  return Object.values(options).filter(isTensor);
}

function outShape({ q, v }: AttentionRule): readonly number[] {
  return [...q.shape.slice(0, -1), v.shape.at(-1) as number];
}

/** The shape of a statistic of rows: [B, H, Sq], or [H, T] for "thd". */
function statisticShape({ q, layout, batch }: AttentionRule): readonly number[] {
  const heads = q.shape.at(-2) as number;
  if (layout === "thd") return [heads, q.shape[0] as number];
  return [batch, heads, q.shape[layout === "bshd" ? 1 : 0] as number];
}
