/** Routers and their losses: results and gradients against the oracle, over all options. */
import { describe, expect, it } from "vitest";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { covering, product } from "../../arbitraries/covering.js";
import { words } from "../../arbitraries/random.js";
import * as oracle from "../../oracle/training/router.js";
import { download, fromCodes, upload, wideValues } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

const ROWS = covering(
  product({
    score: ["softmax", "preSoftmax", "sigmoid", "sqrtsoftplus"],
    experts: [1, 8, 40],
    tokens: [0, 1, 6],
    topk: [1, 2, 8],
    groups: [1, 4],
    biased: [false, true],
    scalingFactor: [undefined, 2.5],
    dtype: ["f32", "bf16", "f16"],
    equal: [false, true],
  } as const).filter(
    ({ experts, topk, groups }) =>
      topk <= experts &&
      experts % groups === 0 &&
      (groups === 1 || (topk % 2 === 0 && topk / 2 <= experts / groups)),
  ),
  3,
);

/** Values of magnitudes around 1, or few distinct values. */
const drawLogits = (
  seed: number,
  shape: readonly number[],
  dtype: "f32" | "bf16" | "f16",
  isEqual = false,
) => {
  const count = shape.reduce((a, b) => a * b, 1);
  const values = Array.from(words(seed, count), (word) =>
    isEqual ? (word % 3) - 1 : (word / 2 ** 32 - 0.5) * 12,
  );
  return rounded(dtype, shape, values.map(Math.fround));
};

function routes(row: (typeof ROWS)[number]): void {
  using _scope = new Scope();
  const { experts, tokens, topk, groups, dtype, scalingFactor } = row;
  const usePreSoftmax = row.score === "preSoftmax";
  const scoreFunction = row.score === "preSoftmax" ? "softmax" : row.score;
  const hasBias = row.biased && scoreFunction !== "softmax";
  const groupTopk = groups === 1 ? 1 : 2;
  const logits = drawLogits(1, [tokens, experts], dtype, row.equal);
  const bias = hasBias ? drawLogits(2, [experts], "f32") : undefined;
  const leaf = new Variable(upload(backend(), logits), true);
  const result = functional.fusedTopkWithScoreFunction(leaf, {
    ...{ topk, numGroups: groups, groupTopk, scoreFunction, scalingFactor },
    usePreSoftmax: usePreSoftmax ? true : undefined,
    expertBias: bias && upload(backend(), bias),
  });
  const router = {
    ...{ k: topk, groups, groupTopk, scoreFunction, usePreSoftmax, scalingFactor },
    bias: bias && [...wideValues(bias)],
  };
  const expected = rowsOf(logits).map((logitsOfToken) => oracle.route(logitsOfToken, router));
  const map = expected.map(({ experts: chosenExperts }) =>
    Array.from({ length: experts }, (_, expert) => Number(chosenExperts.includes(expert))),
  );
  const shape = [tokens, experts];
  expect(download(result.probs.tensor)).toEqual(
    rounded(
      dtype,
      shape,
      expected.flatMap(({ probs }) => probs),
    ),
  );
  expect([...result.topkIndices.dataSync()]).toEqual(
    expected.flatMap(({ experts: chosenExperts }) => chosenExperts),
  );
  expect([...result.routingMap.dataSync()]).toEqual(map.flat());
  const counts = Array.from({ length: experts }, (_, expert) =>
    map.reduce((sum, tokenMap) => sum + (tokenMap[expert] as number), 0),
  );
  expect([...result.tokensPerExpert.dataSync()]).toEqual(counts);
  const grad = drawLogits(3, shape, dtype);
  result.probs.backward(upload(backend(), grad));
  const gradients = rowsOf(grad).map((gradRow, token) => expected[token]?.backward(gradRow) as number[]);
  expect(download(leaf.grad as Tensor)).toEqual(rounded(dtype, shape, gradients.flat()));
  leaf.zeroGrad();
  if (groups === 1 && !hasBias && !usePreSoftmax) scores(leaf, logits, { topk, scoreFunction });
}

/** Compares the scores of the loss, the loss, and their gradients. */
function scores(
  leaf: Variable,
  logits: ReturnType<typeof drawLogits>,
  options: { readonly topk: number; readonly scoreFunction: "softmax" | "sigmoid" | "sqrtsoftplus" },
): void {
  const { shape, dtype } = logits;
  const expected = rowsOf(logits).map((logitsOfToken) =>
    oracle.auxScores(logitsOfToken, options.scoreFunction),
  );
  const result = functional.fusedComputeScoreForMoeAuxLoss(leaf, options);
  const values = expected.map((token) => token.scores);
  expect(download(result.scores.tensor)).toEqual(rounded("f32", shape, values.flat()));
  const counts = drawLogits(4, [shape[1] as number], "f32");
  const [tokens = 0, share = 0] = words(5 + (shape[1] as number) + options.topk, 2);
  // numbers whose quotients and products are inexact, so that every rounding counts
  const numbers = {
    ...{ totalNumTokens: 1 + (tokens % 100_000), numExperts: shape[1] as number },
    ...{ topk: options.topk, coeff: share / 2 ** 36 },
  };
  const loss = functional.fusedMoeAuxLoss(result.scores, upload(backend(), counts), numbers);
  const oracleLoss = oracle.auxLoss(values, [...wideValues(counts)], numbers);
  expect(download(loss.tensor)).toEqual(rounded("f32", [], [oracleLoss.loss]));
  loss.backward(tensor(backend(), [1.5], []));
  const gradOfScores = oracleLoss.backward(1.5);
  expect(download(leaf.grad as Tensor)).toEqual(
    rounded(
      dtype,
      shape,
      expected.flatMap((token) => token.backward(gradOfScores)),
    ),
  );
  leaf.zeroGrad();
}

describe("routers and their losses equal the oracle", () => {
  it(`over ${ROWS.length} calls, which have every three options`, () => {
    for (const row of ROWS) routes(row);
  });
});

testInScope("of equal scores the experts with the lowest indices are chosen", () => {
  const logits = tensor(backend(), new Float32Array(8), [2, 4]);
  for (const scoreFunction of ["softmax", "sigmoid", "sqrtsoftplus"] as const) {
    const { topkIndices, probs } = functional.fusedTopkWithScoreFunction(logits, { topk: 2, scoreFunction });
    expect([...topkIndices.dataSync()]).toEqual([0, 1, 0, 1]);
    expect([...probs.tensor.dataSync()]).toEqual([0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0]);
  }
});

testInScope("a bias moves the choice, not the probabilities", () => {
  const logits = tensor(backend(), [0, 1, 2, 3], [1, 4]);
  const expertBias = tensor(backend(), [9, 0, 0, 0], [4]);
  const call = { topk: 1, scoreFunction: "sigmoid", expertBias } as const;
  const { probs, topkIndices } = functional.fusedTopkWithScoreFunction(logits, call);
  expect([...topkIndices.dataSync()]).toEqual([0]);
  expect([...probs.tensor.dataSync()]).toEqual([0.5, 0, 0, 0]);
});

testInScope("a bf16 loss is rounded once", () => {
  const probs = fromCodes("bf16", [1, 2], [0x3f81, 0x3f83]);
  const counts = tensor(backend(), [1, 1], [2]);
  const options = { totalNumTokens: 1, numExperts: 1, topk: 1, coeff: 1 };
  const loss = functional.fusedMoeAuxLoss(upload(backend(), probs), counts, options);
  expect(download(loss.tensor)).toEqual(rounded("bf16", [], [1.0078125 + 1.0234375]));
});

it("without a graph, only results stay", () => {
  const logits = tensor(backend(), [1, 2, 3, 4], [2, 2]);
  const blocksBefore = backend().memoryUse().blocks;
  const call = () => functional.fusedTopkWithScoreFunction(logits, { topk: 1, scalingFactor: 2 });
  const { probs, ...otherResults } = noGrad(call);
  expect(backend().memoryUse().blocks).toBe(blocksBefore + 4);
  for (const tensorToFree of [probs.tensor, ...Object.values(otherResults), logits]) tensorToFree.dispose();
});

testInScope("options that do not fit are refused", () => {
  const x = empty(backend(), "bf16", [4, 8]);
  const bias = empty(backend(), "f32", [8]);
  const route = functional.fusedTopkWithScoreFunction;
  expect(() => route(x, { topk: 9 })).toThrow(ArgumentError);
  expect(() => route(x, { topk: 2, expertBias: bias })).toThrow(ArgumentError);
  expect(() => route(x, { topk: 2, scoreFunction: "sigmoid", usePreSoftmax: true })).toThrow(ArgumentError);
  const shortTensor = empty(backend(), "f32", [7]);
  expect(() => route(x, { topk: 2, scoreFunction: "sigmoid", expertBias: shortTensor })).toThrow(ShapeError);
  expect(() => route(bias, { topk: 2 })).toThrow(ShapeError);
  const numbers = { totalNumTokens: 1, numExperts: 8, topk: 1, coeff: 1 };
  expect(() => functional.fusedMoeAuxLoss(x, shortTensor, numbers)).toThrow(ShapeError);
});
