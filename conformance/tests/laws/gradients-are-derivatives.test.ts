/** The gradients of every function are the derivatives of its result, in f32 with exact products. */
import { describe } from "vitest";
import type { ActivationName } from "../../../src/backends/ops.js";
import { ACTIVATION } from "../../../src/formats/contract.gen.js";
import * as functional from "../../../src/functional/index.js";
import { RotaryPositionEmbedding } from "../../../src/modules/rotary-position-embedding.js";
import { tensor } from "../../../src/ops/create.js";
import type { Variable } from "../../../src/tape/variable.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import {
  type DrawnCase,
  differentiatesOn,
  KINKED_ACTIVATIONS,
  labels,
  type Make,
} from "../harness/differentiates.js";
import { gridLeaf, gridValues } from "../harness/gradients.js";
import { useBackend } from "../harness/suite.js";

const testDerivatives = differentiatesOn(useBackend({ threads: 1, datapath: "exact" }));
const matrix = ({ rows, columns }: DrawnCase): Shape => [rows, columns];

/** A function of one random leaf. */
function functionOfLeaf(
  shape: (drawnCase: DrawnCase) => Shape,
  run: (x: Variable, drawnCase: DrawnCase) => Variable,
  edges = false,
): Make {
  return (b, drawnCase) => {
    const x = gridLeaf(b, drawnCase.seed, shape(drawnCase));
    return { leaves: [x], hasKinks: edges, run: () => run(x, drawnCase) };
  };
}

describe("functions", () => {
  testDerivatives(
    "dotProductAttention, causal and not",
    functionOfLeaf(
      ({ rows, extra, firstFlag }) => [2, rows, 3 * (firstFlag ? 2 : 1) * extra],
      (x, { firstFlag, secondFlag }) =>
        functional.dotProductAttention(x, { heads: firstFlag ? 2 : 1, causal: secondFlag }),
    ),
    20,
  );
  testDerivatives(
    "attention, with a bias and sinks, bounded and not",
    (b, { rows, extra, seed, firstFlag, secondFlag }) => {
      const [q, k, v] = [
        gridLeaf(b, seed, [1, rows, 2, 4]),
        gridLeaf(b, seed + 1, [1, extra, 1, 4]),
        gridLeaf(b, seed + 2, [1, extra, 1, 3]),
      ] as const;
      const [bias, sinks] = [gridLeaf(b, seed + 3, [1, 1, rows, extra]), gridLeaf(b, seed + 4, [2])] as const;
      const softcap = firstFlag ? 2 : undefined;
      const options = {
        ...{ causal: secondFlag, align: "end" as const, softcap, bias, sinks },
        datapath: "fp32" as const,
      };
      return { leaves: [q, k, v, bias, sinks], run: () => functional.attention(q, k, v, options) };
    },
    20,
  );
  for (const [name, run] of Object.entries({ add: functional.add, multiply: functional.multiply }))
    testDerivatives(name, (b, drawnCase) => {
      const [x, y] = [
        gridLeaf(b, drawnCase.seed, matrix(drawnCase)),
        gridLeaf(b, drawnCase.seed + 1, matrix(drawnCase)),
      ];
      return { leaves: [x, y], run: () => run(x, y) };
    });
  testDerivatives(
    "multiply of a tensor by itself",
    functionOfLeaf(matrix, (x) => functional.multiply(x, x)),
  );
  testDerivatives(
    "sigmoid",
    functionOfLeaf(matrix, (x) => functional.sigmoid(x)),
  );
  testDerivatives(
    "reshape",
    functionOfLeaf(matrix, (x, drawnCase) => functional.reshape(x, [drawnCase.columns, 1, drawnCase.rows])),
  );
  testDerivatives("divide", (b, drawnCase) => {
    const [x, y] = [
      gridLeaf(b, drawnCase.seed, matrix(drawnCase)),
      gridLeaf(b, drawnCase.seed + 1, matrix(drawnCase)),
    ];
    // divisors from 1 to 3, where quotients have small derivatives
    const divisor = () => functional.add(y, tensor(b, [2], [1]));
    return { leaves: [x, y], run: () => functional.divide(x, divisor()) };
  });
  for (const [name, run] of Object.entries({
    add: functional.add,
    multiply: functional.multiply,
  }))
    testDerivatives(`${name} of a row or a column to a matrix`, (b, drawnCase) => {
      const smallShape = drawnCase.firstFlag ? [drawnCase.columns] : [drawnCase.rows, 1];
      const [x, y] = [
        gridLeaf(b, drawnCase.seed, matrix(drawnCase)),
        gridLeaf(b, drawnCase.seed + 1, smallShape),
      ];
      return { leaves: [x, y], run: () => run(x, y) };
    });
  testDerivatives(
    "exp",
    functionOfLeaf(matrix, (x) => functional.exp(x)),
  );
  testDerivatives(
    "rsqrt",
    functionOfLeaf(matrix, (x) => functional.rsqrt(functional.add(x, tensor(x.backend, [2], [1])))),
  );
  testDerivatives("where", (b, drawnCase) => {
    const [x, y] = [
      gridLeaf(b, drawnCase.seed, matrix(drawnCase)),
      gridLeaf(b, drawnCase.seed + 1, matrix(drawnCase)),
    ];
    const flags = labels(b, drawnCase.seed, drawnCase.rows * drawnCase.columns, 2);
    const condition = tensor(b, Float32Array.from(flags.dataSync()), matrix(drawnCase));
    return { leaves: [x, y], run: () => functional.where(condition, x, y) };
  });
  testDerivatives(
    "cast to its own type",
    functionOfLeaf(matrix, (x) => functional.cast(x, "f32")),
  );
  testDerivatives(
    "sum and mean of some dimensions",
    functionOfLeaf(
      ({ rows, columns, extra }) => [rows, columns, extra],
      (x, { firstFlag, secondFlag }) =>
        (firstFlag ? functional.sum : functional.mean)(x, { dim: secondFlag ? 1 : [0, -1] }),
    ),
  );
  testDerivatives(
    "mean of all elements",
    functionOfLeaf(matrix, (x) => functional.mean(x)),
  );
  testDerivatives(
    "softmax along any dimension",
    functionOfLeaf(
      ({ rows, columns, extra }) => [rows, columns, extra],
      (x, { seed }) => functional.softmax(x, { dim: seed % 3 }),
    ),
  );
  testDerivatives(
    "cumsum along any dimension, from either end",
    functionOfLeaf(
      ({ rows, columns, extra }) => [rows, columns, extra],
      (x, { seed, firstFlag }) => functional.cumsum(x, seed % 3, { reverse: firstFlag }),
    ),
  );
  testDerivatives(
    "dropout",
    functionOfLeaf(matrix, (x, { seed }) => functional.dropout(x, { probability: 0.25, seed: BigInt(seed) })),
  );
  testDerivatives("gather along any dimension", (b, drawnCase) => {
    const x = gridLeaf(b, drawnCase.seed, matrix(drawnCase));
    const dim = Number(drawnCase.firstFlag);
    const shape = dim === 0 ? [drawnCase.extra, drawnCase.columns] : [drawnCase.rows, drawnCase.extra];
    const index = labels(b, drawnCase.seed, elementCount(shape), matrix(drawnCase)[dim] as number).reshape(
      shape,
    );
    return { leaves: [x], run: () => functional.gather(x, dim, index) };
  });
  testDerivatives(
    "sqrtSoftplus",
    functionOfLeaf(matrix, (x) => functional.sqrtSoftplus(x)),
  );
  for (const scoreFunction of ["softmax", "sigmoid", "sqrtsoftplus"] as const)
    testDerivatives(
      `a router of ${scoreFunction}, and its loss`,
      functionOfLeaf(
        matrix,
        (x, { rows, columns, firstFlag, secondFlag, seed }) => {
          const topk = 1 + (seed % columns);
          const usePreSoftmax = firstFlag && scoreFunction === "softmax";
          const { probs, tokensPerExpert } = functional.fusedTopkWithScoreFunction(x, {
            ...{ topk, scoreFunction, usePreSoftmax, scalingFactor: secondFlag ? 1.5 : undefined },
          });
          const { scores } = functional.fusedComputeScoreForMoeAuxLoss(x, { topk, scoreFunction });
          const options = { totalNumTokens: rows, numExperts: columns, topk, coeff: 0.5 };
          const loss = functional.fusedMoeAuxLoss(scores, tokensPerExpert, options);
          return functional.add(functional.multiply(probs, scores), functional.reshape(loss, [1, 1]));
        },
        true,
      ),
    );
  testDerivatives("moePermuteWithProbs and moeUnpermute", (b, drawnCase) => {
    const x = gridLeaf(b, drawnCase.seed, matrix(drawnCase));
    const shape = [drawnCase.rows, 3];
    const experts = labels(b, drawnCase.seed + 1, 3 * drawnCase.rows, drawnCase.extra).reshape(shape);
    const probs = gridLeaf(b, drawnCase.seed + 2, shape);
    const options = {
      mapType: "index",
      numExperts: drawnCase.extra,
      alignSize: 4,
      numOutTokens: 4 * drawnCase.rows,
    } as const;
    const run = () => {
      const { output, permutedProbs, rowIdMap } = functional.moePermuteWithProbs(x, probs, experts, options);
      const scaledOutput = functional.multiply(
        output,
        functional.reshape(permutedProbs, [4 * drawnCase.rows, 1]),
      );
      return functional.moeUnpermute(scaledOutput, rowIdMap, {
        mergingProbs: drawnCase.firstFlag ? probs : undefined,
      });
    };
    return { leaves: [x, probs], run };
  });
  testDerivatives("moeSortChunksByIndex, padding and unpadding", (b, drawnCase) => {
    const x = gridLeaf(b, drawnCase.seed, matrix(drawnCase));
    const splits = [drawnCase.rows - 1, 0, 1];
    const run = () => {
      const sortedChunks = functional.moeSortChunksByIndex(x, splits, [2, 0, 1]);
      const paddedChunks = functional.padding(sortedChunks, [1, drawnCase.rows - 1, 0], 4);
      return drawnCase.firstFlag
        ? paddedChunks.output
        : functional.unpadding(paddedChunks.output, [1, drawnCase.rows - 1, 0], 4);
    };
    return { leaves: [x], run };
  });
  testDerivatives(
    "expand",
    functionOfLeaf(
      ({ columns }) => [1, columns, 1],
      (x, { rows, columns, extra }) => functional.expand(x, [2, rows, columns, extra]),
    ),
  );
  testDerivatives(
    "slice",
    functionOfLeaf(matrix, (x, { columns, seed, firstFlag }) => {
      const start = seed % columns;
      return functional.slice(
        x,
        1,
        firstFlag ? start : start - columns,
        columns - (seed % (columns - start)),
      );
    }),
  );
  testDerivatives("concatenate", (b, drawnCase) => {
    const [x, y] = [
      gridLeaf(b, drawnCase.seed, matrix(drawnCase)),
      gridLeaf(b, drawnCase.seed + 1, [drawnCase.rows, drawnCase.extra]),
    ];
    return { leaves: [x, y], run: () => functional.concatenate([x, y, x], -1) };
  });
  testDerivatives(
    "transpose",
    functionOfLeaf(
      ({ rows, columns, extra }) => [rows, columns, extra],
      (x) => functional.transpose(x, 0, -1),
    ),
  );
  testDerivatives(
    "permute",
    functionOfLeaf(
      ({ rows, columns, extra }) => [rows, columns, extra],
      (x) => functional.permute(x, [1, 2, 0]),
    ),
  );
  for (const kind of Object.keys(ACTIVATION) as ActivationName[]) {
    testDerivatives(
      `activation ${kind}`,
      functionOfLeaf(matrix, (x) => functional.activation(x, kind), KINKED_ACTIVATIONS.includes(kind)),
    );
    const halves = ({ rows, extra }: DrawnCase): Shape => [rows, 2 * extra];
    testDerivatives(
      `gated ${kind}`,
      functionOfLeaf(halves, (x) => functional.gated(x, kind), KINKED_ACTIVATIONS.includes(kind)),
    );
  }
  testDerivatives("rotaryEmbedding", (b, drawnCase) => {
    const { rows, columns, extra, firstFlag, secondFlag } = drawnCase;
    const x = gridLeaf(b, drawnCase.seed, [rows, columns, 2, 2 * extra + 1]);
    const rotary = new RotaryPositionEmbedding(b, 2 * extra, { interleaved: firstFlag });
    const { cos, sin, interleaved } = rotary.forward(secondFlag ? columns : rows);
    const layout = secondFlag ? ("bshd" as const) : ("sbhd" as const);
    return { leaves: [x], run: () => functional.rotaryEmbedding(x, cos, sin, { layout, interleaved }) };
  });
  testDerivatives("embedding", (b, drawnCase) => {
    const table = gridLeaf(b, drawnCase.seed, [drawnCase.extra, drawnCase.columns]);
    const ids = labels(b, drawnCase.seed, 2 * drawnCase.rows, drawnCase.extra).reshape([2, drawnCase.rows]);
    return { leaves: [table], run: () => functional.embedding(table, ids) };
  });
  testDerivatives(
    "crossEntropyLoss, smoothed and not, with rows that are ignored and without",
    functionOfLeaf(matrix, (x, { rows, columns, seed, firstFlag, secondFlag }) =>
      functional.crossEntropyLoss(x, labels(x.value.backend, seed, rows, columns), {
        smoothing: firstFlag ? 0.25 : 0,
        ...(secondFlag ? { ignore: 0 } : {}),
      }),
    ),
    30,
  );
  testDerivatives(
    "mseLoss",
    functionOfLeaf(matrix, (x, { seed }) =>
      functional.mseLoss(x, tensor(x.value.backend, gridValues(seed + 1, elementCount(x.shape)), x.shape)),
    ),
  );
});
