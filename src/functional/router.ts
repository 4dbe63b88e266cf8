/** Differentiable routers of experts: probabilities of the chosen experts, and losses that balance them. */
import { ArgumentError, ShapeError } from "../errors.js";
import { tensor } from "../ops/create.js";
import { expand } from "../ops/layout/copy-slice.js";
import { sum as sumOf } from "../ops/rows/sum.js";
import { type LargestElements, topk as largest, type TopkOptions } from "../ops/rows/topk.js";
import { boolean, finite, integer, needed, type OptionTable, oneOf, optionsOf } from "../options.js";
import { composed } from "../tape/composed.js";
import { type VariableLike, variableOf } from "../tape/differentiable.js";
import { gradEnabled } from "../tape/grad-mode.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { requireF32, requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { Shape } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { add, cast, divide, multiply, sigmoid, sqrtSoftplus, where } from "./elementwise.js";
import { softmax } from "./rows.js";
import { sum } from "./sum.js";

/**
 * The function that computes scores from logits: softmax over experts, or the logistic function or sqrt(softplus) of each logit.
 */
export type RouterScoreFunction = "softmax" | "sigmoid" | "sqrtsoftplus";

/** Options of `functional.fusedTopkWithScoreFunction`. */
export interface RouterOptions extends TopkOptions {
  /** The number of experts of each token. */
  readonly topk: number;
  /** The function that computes scores from logits. Default softmax. */
  readonly scoreFunction?: RouterScoreFunction | undefined;
  /** Whether softmax is taken over all experts before they are chosen, not over the chosen ones. Default false. */
  readonly usePreSoftmax?: boolean | undefined;
  /** The factor of the probabilities, rounded to f32. Default 1. */
  readonly scalingFactor?: number | undefined;
  /** A bias of each expert, [E], which is added to the scores by which experts are chosen. Not with softmax. Default: none. */
  readonly expertBias?: Tensor | undefined;
}

/** The experts of tokens. The tensors belong to the open scope or the caller. */
export interface RoutedTokens extends Pick<LargestElements, "routingMap"> {
  /** The indices of each token's experts, the best first, i32 [T, topk]. */
  readonly topkIndices: Tensor<"i32">;
  /** The number of tokens of each expert, f32 [E]. */
  readonly tokensPerExpert: Tensor<"f32">;
}

/** The experts of tokens and their probabilities. */
export interface RouterResult extends RoutedTokens {
  /** The probability of each token's experts, [T, E] in the dtype of the logits; +0 for experts that were not chosen. */
  readonly probs: Variable;
}

/** Options of `functional.fusedComputeScoreForMoeAuxLoss`. */
export interface AuxScoreOptions {
  /** The number of experts of each token. */
  readonly topk: number;
  /** The function that computes scores from logits. Default softmax. */
  readonly scoreFunction?: RouterScoreFunction | undefined;
}

/** Scores of all experts, and the experts with the largest scores. */
export interface AuxScores extends RoutedTokens {
  /** The scores of all experts, f32 [T, E]. They add up to 1 for each token. */
  readonly scores: Variable;
}

/** Options of `functional.fusedMoeAuxLoss`. */
export interface AuxLossOptions {
  /** The number of tokens of all ranks and microbatches that the loss belongs to. */
  readonly totalNumTokens: number;
  /** The number of experts. */
  readonly numExperts: number;
  /** The number of experts of each token. */
  readonly topk: number;
  /** The factor of the loss. */
  readonly coeff: number;
}

/** A constant that is added to divisors, so that they are not 0. */
const EPSILON = 1e-20;
const MAX_EXPERTS = 2 ** 31 - 1;
const count = integer(1, MAX_EXPERTS);
const scoreFunction = oneOf(["softmax", "sigmoid", "sqrtsoftplus"]);
/** Checks the fields of `RouterOptions`. */
export const ROUTER_OPTIONS: OptionTable<RouterOptions> = {
  topk: needed(count),
  numGroups: count,
  groupTopk: count,
  scoreFunction,
  usePreSoftmax: boolean,
  scalingFactor: finite,
  expertBias: requireWide,
};
const checkOptions = optionsOf(ROUTER_OPTIONS);
const checkScores = optionsOf<AuxScoreOptions>({ topk: needed(count), scoreFunction });
const checkLoss = optionsOf<AuxLossOptions>({
  totalNumTokens: needed(integer(1)),
  numExperts: needed(count),
  topk: needed(count),
  coeff: needed(finite),
});

/**
 * Chooses the experts of tokens by their `logits` [T, E], and returns their probabilities: the softmax of the logits of the
 * chosen experts, or their scores divided by the sum of these, each times `scalingFactor`. All is computed in f32 and rounded
 * once to the dtype of the logits (numerics.md §7.17). Of equal scores, the expert with the lowest index is chosen. Corresponds
 * to `fused_topk_with_score_function` of TransformerEngine. There is no gradient of the choice and of `expertBias`.
 *
 * @throws `DTypeError` for logits or a bias that are not f32, bf16 or f16, `ShapeError` for logits that are not a matrix, or a
 * bias without one element for each expert, `ArgumentError` for a missing or invalid option, numbers of groups that do not fit
 * (see `topk`), a bias or `usePreSoftmax` with a score function that has none, an argument that is not a tensor, or tensors on
 * different backends, `DisposedError` for a disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function fusedTopkWithScoreFunction(logits: VariableLike, options: RouterOptions): RouterResult {
  const caller = "fusedTopkWithScoreFunction";
  const source = variableOf(caller, "logits", logits);
  const ownOptions = checkOptions(caller, options);
  const {
    topk,
    scoreFunction: name = "softmax",
    usePreSoftmax = false,
    scalingFactor = 1,
    expertBias,
  } = ownOptions;
  const { dtype, shape } = wideOf(`${caller}: logits`, source.value);
  requireMatrix(caller, "logits", shape);
  if (name === "softmax" && expertBias)
    throw new ArgumentError(
      `${caller}: expertBias is for sigmoid and sqrtsoftplus; leave it out with softmax`,
    );
  if (name !== "softmax" && usePreSoftmax)
    throw new ArgumentError(`${caller}: usePreSoftmax is for softmax; leave it out with ${name}`);
  if (expertBias && (expertBias.shape.length !== 1 || expertBias.shape[0] !== shape[1]))
    throw new ShapeError(
      `${caller}: expertBias is [${expertBias.shape}]; it must be [${shape[1]}], one for each expert`,
    );
  using scope = new Scope();
  const z = cast(source, "f32");
  const isPost = name === "softmax" && !usePreSoftmax;
  const scores = isPost ? z : computeScores(z, name);
  const routed = routing(scores, ownOptions, expertBias);
  const zeros = fillLike(scores, 0);
  const selectedScores = where(
    routed.mask,
    scores,
    isPost ? fillLike(scores, Number.NEGATIVE_INFINITY) : zeros,
  );
  const shares = isPost
    ? where(routed.mask, softmax(selectedScores), zeros)
    : name !== "softmax" && topk > 1
      ? normalizeScores(selectedScores)
      : selectedScores;
  const scaledShares = scalingFactor === 1 ? shares : multiply(shares, constant(scores, scalingFactor));
  const probs = cast(scaledShares, dtype);
  return { probs, ...keepResults(scope, probs, routed) };
}

/**
 * Returns scores of all experts for each token of `logits` [T, E], which add up to 1, and the experts with the largest: the
 * softmax, or scores divided by their sum. They are computed and returned in f32 (numerics.md §7.17). Corresponds to
 * `fused_compute_score_for_moe_aux_loss` of TransformerEngine. There is no gradient of the choice.
 *
 * @throws `DTypeError` for logits that are not f32, bf16 or f16, `ShapeError` for logits that are not a matrix, `ArgumentError`
 * for a missing or invalid option, more chosen experts than there are, or an argument that is not a tensor, `DisposedError` for a
 * disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function fusedComputeScoreForMoeAuxLoss(logits: VariableLike, options: AuxScoreOptions): AuxScores {
  const caller = "fusedComputeScoreForMoeAuxLoss";
  const source = variableOf(caller, "logits", logits);
  const ownOptions = checkScores(caller, options);
  const { scoreFunction: name = "softmax" } = ownOptions;
  requireMatrix(caller, "logits", wideOf(`${caller}: logits`, source.value).shape);
  using scope = new Scope();
  const tokenScores = computeScores(cast(source, "f32"), name);
  const scores = name === "softmax" ? tokenScores : normalizeScores(tokenScores);
  const routed = routing(scores, ownOptions, undefined);
  return { scores, ...keepResults(scope, scores, routed) };
}

/**
 * Returns the loss that balances experts, of shape [] in the dtype of `probs` [T, C]: the sum over columns of the sum of a
 * column's probabilities, times its element of `tokensPerExpert` [C], times numExperts * coeff / topk / totalNumTokens^2. A
 * column is an expert, or an expert of one of several sequences. It is computed in f32 (numerics.md §7.17). Corresponds to
 * `fused_moe_aux_loss` of TransformerEngine. There is no gradient of `tokensPerExpert`.
 *
 * @throws `DTypeError` for tensors that are not f32, bf16 or f16, `ShapeError` for probabilities that are not a matrix, or
 * `tokensPerExpert` without one element for each column, `ArgumentError` for a missing or invalid option, an argument that is not
 * a tensor, or tensors on different backends, `DisposedError` for a disposed tensor, `OutOfMemoryError` if memory is not
 * available.
 */
export function fusedMoeAuxLoss(
  probs: VariableLike,
  tokensPerExpert: Tensor,
  options: AuxLossOptions,
): Variable {
  const caller = "fusedMoeAuxLoss";
  const source = variableOf(caller, "probs", probs);
  const tokens = requireWide(caller, "tokensPerExpert", tokensPerExpert);
  const ownOptions = checkLoss(caller, options);
  const { dtype, shape, backend } = wideOf(`${caller}: probs`, source.value);
  requireMatrix(caller, "probs", shape);
  if (tokens.shape.length !== 1 || tokens.shape[0] !== shape[1])
    throw new ShapeError(
      `${caller}: tokensPerExpert is [${tokens.shape}]; it must be [${shape[1]}], one for each column of probs`,
    );
  if (tokens.backend !== backend)
    throw new ArgumentError(
      `${caller}: its tensors live on different backends; move them to one by data() and tensor()`,
    );
  const [loss] = composed(() => {
    const products = multiply(sum(cast(source, "f32"), { dim: 0 }), cast(tokens, "f32"));
    const total = sum(products);
    return [cast(multiply(total, constant(total, auxCoefficient(ownOptions))), dtype)];
  });
  return loss;
}

/** Returns the factor of the loss, with each operation rounded to f32. */
function auxCoefficient({ totalNumTokens, numExperts, topk, coeff }: AuxLossOptions): number {
  const { fround } = Math;
  const total = fround(totalNumTokens);
  const factor = fround(fround(numExperts) * fround(coeff));
  return fround(fround(fround(factor / fround(topk)) / total) / total);
}

/** Returns the scores of f32 logits. */
function computeScores(z: Variable, name: RouterScoreFunction): Variable {
  if (name === "softmax") return softmax(z);
  return name === "sigmoid" ? sigmoid(z) : sqrtSoftplus(z);
}

/** Returns scores divided by their sum and a small number. */
function normalizeScores(scores: Variable): Variable {
  const total = sum(scores, { dim: -1, keepdim: true });
  return divide(scores, add(total, constant(scores, EPSILON)));
}

/** Returns the experts with the largest scores, after `bias` is added. */
function routing(
  scores: Variable,
  { topk, ...groups }: RouterOptions,
  bias: Tensor | undefined,
): LargestElements {
  const { numGroups, groupTopk } = groups;
  const rankingScores = bias ? add(scores.detach(), bias) : scores;
  return largest(rankingScores.tensor, topk, { numGroups, groupTopk });
}

/** Returns the results for the caller. They, and the tensors that a backward pass reads, outlive the scope. */
function keepResults(
  scope: Scope,
  result: Variable,
  { indices, routingMap, mask }: LargestElements,
): RoutedTokens {
  const tokensPerExpert = requireF32("router", "the counts", sumOf(mask, { dim: 0 }));
  if (gradEnabled()) scope.keepAll();
  else for (const each of [result.value, indices, routingMap, tokensPerExpert]) scope.keep(each);
  return { routingMap, topkIndices: indices, tokensPerExpert };
}

/** Returns a number as a scalar on the backend of x. */
function constant(x: Variable, value: number): Tensor<"f32"> {
  return tensor(x.backend, [value], []);
}

/** Returns a tensor in the shape of x, each element of which is a number. */
function fillLike(x: Variable, value: number): Tensor {
  return expand(constant(x, value), x.shape);
}

/** Throws `ShapeError` unless logits have a row for each token and a column for each expert. */
function requireMatrix(caller: string, name: string, shape: Shape): void {
  if (shape.length !== 2) throw new ShapeError(`${caller}: ${name} is [${shape}]; it must be a matrix`);
}
