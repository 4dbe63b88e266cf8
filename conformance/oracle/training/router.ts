/** Routers of experts and their gradients, from the definition in numerics.md 7.17, for one token at a time. */
import { add, div, mul } from "../core/rational.js";
import { RULES } from "../elementwise/activation.js";
import { OPERATORS } from "../elementwise/operators.js";
import { chunkedSum } from "../rows/norm.js";
import { softmax, softmaxBackward } from "../rows/softmax.js";
import { type Groups, topk } from "../rows/topk.js";

const { fround } = Math;

/** How experts are chosen, and how their probabilities are computed. */
export interface Router extends Groups {
  readonly k: number;
  readonly scoreFunction: "softmax" | "sigmoid" | "sqrtsoftplus";
  readonly usePreSoftmax: boolean;
  readonly scalingFactor: number | undefined;
  readonly bias: readonly number[] | undefined;
}

const EPSILON = fround(1e-20);

const VALUES = {
  sigmoid: OPERATORS.sigmoid.value,
  sqrtsoftplus: OPERATORS.sqrtSoftplus.value,
} as const;
const DERIVATIVES = {
  sigmoid: (x: number) => fround(RULES.sigmoid.derivative(x)),
  sqrtsoftplus: OPERATORS.sqrtSoftplusDerivative.value,
} as const;

const divided = (scores: readonly number[]) => {
  const divisor = add(chunkedSum(scores), EPSILON);
  return { divisor, shares: scores.map((score) => div(score, divisor)) };
};

/** The gradient of scores that were divided by their sum. */
function dividedBackward(grad: readonly number[], scores: readonly number[], divisor: number): number[] {
  const ofDivisor = chunkedSum(scores.map((score, e) => -mul(grad[e]!, div(div(score, divisor), divisor))));
  return grad.map((each) => add(div(each, divisor), ofDivisor));
}

/** The probabilities of f32 logits, the chosen experts, and the gradient of the logits for one of the probabilities. */
export function route(z: readonly number[], router: Router) {
  const { k, scoreFunction, usePreSoftmax, scalingFactor, bias } = router;
  const isPost = scoreFunction === "softmax" && !usePreSoftmax;
  const scores = isPost
    ? z
    : scoreFunction === "softmax"
      ? softmax(z, z.length)
      : z.map((each) => VALUES[scoreFunction](each));
  const ranked = bias ? scores.map((score, e) => add(score, bias[e]!)) : scores;
  const experts = topk(ranked, k, router);
  const masked = (values: readonly number[], filler: number) =>
    values.map((value, e) => (experts.includes(e) ? value : filler));
  const scaled = (values: readonly number[]) =>
    scalingFactor === undefined ? values : values.map((each) => mul(each, fround(scalingFactor)));
  const chosenScores = masked(scores, isPost ? Number.NEGATIVE_INFINITY : 0);
  const allShares = isPost ? softmax(chosenScores, z.length) : chosenScores;
  const isDivided = scoreFunction !== "softmax" && k > 1;
  const { divisor, shares } = isDivided
    ? divided(chosenScores)
    : { divisor: 1, shares: masked(allShares, 0) };
  const backward = (grad: readonly number[]): number[] => {
    const g = scaled(grad);
    if (isPost) return masked(softmaxBackward(masked(g, 0), allShares, z.length), 0);
    if (scoreFunction === "softmax") return softmaxBackward(masked(g, 0), scores, z.length);
    const ofScores = masked(isDivided ? dividedBackward(g, chosenScores, divisor) : g, 0);
    return ofScores.map((each, e) => mul(DERIVATIVES[scoreFunction](z[e]!), each));
  };
  return { probs: scaled(shares), experts, backward };
}

/** The scores of all experts, and the gradient of the logits for one of the scores. */
export function auxScores(z: readonly number[], scoreFunction: Router["scoreFunction"]) {
  if (scoreFunction === "softmax") {
    const scores = softmax(z, z.length);
    return { scores, backward: (grad: readonly number[]) => softmaxBackward(grad, scores, z.length) };
  }
  const values = z.map((x) => VALUES[scoreFunction](x));
  const { divisor, shares } = divided(values);
  return {
    scores: shares,
    backward: (grad: readonly number[]) =>
      dividedBackward(grad, values, divisor).map((g, e) => mul(DERIVATIVES[scoreFunction](z[e]!), g)),
  };
}

/** The loss that balances experts, and the gradient of each column's probabilities. */
export function auxLoss(
  probs: readonly (readonly number[])[],
  tokensPerExpert: readonly number[],
  {
    totalNumTokens,
    numExperts,
    topk: k,
    coeff,
  }: { readonly [K in "totalNumTokens" | "numExperts" | "topk" | "coeff"]: number },
) {
  const total = fround(totalNumTokens);
  const factor = div(div(div(mul(fround(numExperts), fround(coeff)), fround(k)), total), total);
  const products = tokensPerExpert.map((count, e) => mul(chunkedSum(probs.map((row) => row[e]!)), count));
  return {
    loss: mul(chunkedSum(products), factor),
    backward: (grad: number) => tokensPerExpert.map((count) => mul(mul(grad, factor), count)),
  };
}
