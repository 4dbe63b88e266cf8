/** The gradients of every function are the derivatives of its result, in f32 with exact products. */
import { describe } from "vitest";
import type { ActivationName } from "../../../src/backends/ops.js";
import { ACTIVATION } from "../../../src/formats/contract.gen.js";
import * as functional from "../../../src/functional/index.js";
import { RotaryPositionEmbedding } from "../../../src/modules/rotary-position-embedding.js";
import { tensor } from "../../../src/ops/create.js";
import type { Variable } from "../../../src/tape/variable.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import { type Drawn, differentiatesOn, EDGED, labels, type Make } from "../harness/differentiates.js";
import { gridLeaf, gridValues } from "../harness/gradients.js";
import { useBackend } from "../harness/suite.js";

const differentiates = differentiatesOn(useBackend({ threads: 1, datapath: "exact" }));
const matrix = ({ rows, columns }: Drawn): Shape => [rows, columns];

/** A function of one random leaf. */
function ofLeaf(
  shape: (drawn: Drawn) => Shape,
  run: (x: Variable, drawn: Drawn) => Variable,
  edges = false,
): Make {
  return (b, each) => {
    const x = gridLeaf(b, each.seed, shape(each));
    return { leaves: [x], edges, run: () => run(x, each) };
  };
}

describe("functions", () => {
  differentiates(
    "dotProductAttention, causal and not",
    ofLeaf(
      ({ rows, others, one }) => [2, rows, 3 * (one ? 2 : 1) * others],
      (x, { one, other }) => functional.dotProductAttention(x, { heads: one ? 2 : 1, causal: other }),
    ),
    20,
  );
  differentiates(
    "attention, with a bias and sinks, bounded and not",
    (b, { rows, others, seed, one, other }) => {
      const [q, k, v] = [
        gridLeaf(b, seed, [1, rows, 2, 4]),
        gridLeaf(b, seed + 1, [1, others, 1, 4]),
        gridLeaf(b, seed + 2, [1, others, 1, 3]),
      ] as const;
      const [bias, sinks] = [
        gridLeaf(b, seed + 3, [1, 1, rows, others]),
        gridLeaf(b, seed + 4, [2]),
      ] as const;
      const softcap = one ? 2 : undefined;
      const options = {
        ...{ causal: other, align: "end" as const, softcap, bias, sinks },
        datapath: "fp32" as const,
      };
      return { leaves: [q, k, v, bias, sinks], run: () => functional.attention(q, k, v, options) };
    },
    20,
  );
  for (const [name, run] of Object.entries({ add: functional.add, multiply: functional.multiply }))
    differentiates(name, (b, each) => {
      const [x, y] = [gridLeaf(b, each.seed, matrix(each)), gridLeaf(b, each.seed + 1, matrix(each))];
      return { leaves: [x, y], run: () => run(x, y) };
    });
  differentiates(
    "multiply of a tensor by itself",
    ofLeaf(matrix, (x) => functional.multiply(x, x)),
  );
  differentiates(
    "sigmoid",
    ofLeaf(matrix, (x) => functional.sigmoid(x)),
  );
  differentiates(
    "reshape",
    ofLeaf(matrix, (x, each) => functional.reshape(x, [each.columns, 1, each.rows])),
  );
  differentiates("divide", (b, each) => {
    const [x, y] = [gridLeaf(b, each.seed, matrix(each)), gridLeaf(b, each.seed + 1, matrix(each))];
    // divisors from 1 to 3, where quotients have small derivatives
    const divisor = () => functional.add(y, tensor(b, [2], [1]));
    return { leaves: [x, y], run: () => functional.divide(x, divisor()) };
  });
  for (const [name, run] of Object.entries({
    add: functional.add,
    multiply: functional.multiply,
  }))
    differentiates(`${name} of a row or a column to a matrix`, (b, each) => {
      const small = each.one ? [each.columns] : [each.rows, 1];
      const [x, y] = [gridLeaf(b, each.seed, matrix(each)), gridLeaf(b, each.seed + 1, small)];
      return { leaves: [x, y], run: () => run(x, y) };
    });
  differentiates(
    "exp",
    ofLeaf(matrix, (x) => functional.exp(x)),
  );
  differentiates(
    "rsqrt",
    ofLeaf(matrix, (x) => functional.rsqrt(functional.add(x, tensor(x.backend, [2], [1])))),
  );
  differentiates("where", (b, each) => {
    const [x, y] = [gridLeaf(b, each.seed, matrix(each)), gridLeaf(b, each.seed + 1, matrix(each))];
    const flags = labels(b, each.seed, each.rows * each.columns, 2);
    const condition = tensor(b, Float32Array.from(flags.dataSync()), matrix(each));
    return { leaves: [x, y], run: () => functional.where(condition, x, y) };
  });
  differentiates(
    "cast to its own type",
    ofLeaf(matrix, (x) => functional.cast(x, "f32")),
  );
  differentiates(
    "sum and mean of some dimensions",
    ofLeaf(
      ({ rows, columns, others }) => [rows, columns, others],
      (x, { one, other }) => (one ? functional.sum : functional.mean)(x, { dim: other ? 1 : [0, -1] }),
    ),
  );
  differentiates(
    "mean of all elements",
    ofLeaf(matrix, (x) => functional.mean(x)),
  );
  differentiates(
    "softmax along any dimension",
    ofLeaf(
      ({ rows, columns, others }) => [rows, columns, others],
      (x, { seed }) => functional.softmax(x, { dim: seed % 3 }),
    ),
  );
  differentiates(
    "dropout",
    ofLeaf(matrix, (x, { seed }) => functional.dropout(x, { probability: 0.25, seed: BigInt(seed) })),
  );
  differentiates("gather along any dimension", (b, each) => {
    const x = gridLeaf(b, each.seed, matrix(each));
    const dim = Number(each.one);
    const shape = dim === 0 ? [each.others, each.columns] : [each.rows, each.others];
    const index = labels(b, each.seed, elementCount(shape), matrix(each)[dim] as number).reshape(shape);
    return { leaves: [x], run: () => functional.gather(x, dim, index) };
  });
  differentiates(
    "sqrtSoftplus",
    ofLeaf(matrix, (x) => functional.sqrtSoftplus(x)),
  );
  for (const scoreFunction of ["softmax", "sigmoid", "sqrtsoftplus"] as const)
    differentiates(
      `a router of ${scoreFunction}, and its loss`,
      ofLeaf(
        matrix,
        (x, { rows, columns, one, other, seed }) => {
          const topk = 1 + (seed % columns);
          const usePreSoftmax = one && scoreFunction === "softmax";
          const { probs, tokensPerExpert } = functional.fusedTopkWithScoreFunction(x, {
            ...{ topk, scoreFunction, usePreSoftmax, scalingFactor: other ? 1.5 : undefined },
          });
          const { scores } = functional.fusedComputeScoreForMoeAuxLoss(x, { topk, scoreFunction });
          const options = { totalNumTokens: rows, numExperts: columns, topk, coeff: 0.5 };
          const loss = functional.fusedMoeAuxLoss(scores, tokensPerExpert, options);
          return functional.add(functional.multiply(probs, scores), functional.reshape(loss, [1, 1]));
        },
        true,
      ),
    );
  differentiates("moePermuteWithProbs and moeUnpermute", (b, each) => {
    const x = gridLeaf(b, each.seed, matrix(each));
    const shape = [each.rows, 3];
    const experts = labels(b, each.seed + 1, 3 * each.rows, each.others).reshape(shape);
    const probs = gridLeaf(b, each.seed + 2, shape);
    const options = {
      mapType: "index",
      numExperts: each.others,
      alignSize: 4,
      numOutTokens: 4 * each.rows,
    } as const;
    const run = () => {
      const { output, permutedProbs, rowIdMap } = functional.moePermuteWithProbs(x, probs, experts, options);
      const scaled = functional.multiply(output, functional.reshape(permutedProbs, [4 * each.rows, 1]));
      return functional.moeUnpermute(scaled, rowIdMap, { mergingProbs: each.one ? probs : undefined });
    };
    return { leaves: [x, probs], run };
  });
  differentiates("moeSortChunksByIndex, padding and unpadding", (b, each) => {
    const x = gridLeaf(b, each.seed, matrix(each));
    const splits = [each.rows - 1, 0, 1];
    const run = () => {
      const sorted = functional.moeSortChunksByIndex(x, splits, [2, 0, 1]);
      const padded = functional.padding(sorted, [1, each.rows - 1, 0], 4);
      return each.one ? padded.output : functional.unpadding(padded.output, [1, each.rows - 1, 0], 4);
    };
    return { leaves: [x], run };
  });
  differentiates(
    "expand",
    ofLeaf(
      ({ columns }) => [1, columns, 1],
      (x, { rows, columns, others }) => functional.expand(x, [2, rows, columns, others]),
    ),
  );
  differentiates(
    "slice",
    ofLeaf(matrix, (x, { columns, seed, one }) => {
      const start = seed % columns;
      return functional.slice(x, 1, one ? start : start - columns, columns - (seed % (columns - start)));
    }),
  );
  differentiates("concatenate", (b, each) => {
    const [x, y] = [
      gridLeaf(b, each.seed, matrix(each)),
      gridLeaf(b, each.seed + 1, [each.rows, each.others]),
    ];
    return { leaves: [x, y], run: () => functional.concatenate([x, y, x], -1) };
  });
  differentiates(
    "transpose",
    ofLeaf(
      ({ rows, columns, others }) => [rows, columns, others],
      (x) => functional.transpose(x, 0, -1),
    ),
  );
  differentiates(
    "permute",
    ofLeaf(
      ({ rows, columns, others }) => [rows, columns, others],
      (x) => functional.permute(x, [1, 2, 0]),
    ),
  );
  for (const kind of Object.keys(ACTIVATION) as ActivationName[]) {
    differentiates(
      `activation ${kind}`,
      ofLeaf(matrix, (x) => functional.activation(x, kind), EDGED.includes(kind)),
    );
    const halves = ({ rows, others }: Drawn): Shape => [rows, 2 * others];
    differentiates(
      `gated ${kind}`,
      ofLeaf(halves, (x) => functional.gated(x, kind), EDGED.includes(kind)),
    );
  }
  differentiates("rotaryEmbedding", (b, each) => {
    const { rows, columns, others, one, other } = each;
    const x = gridLeaf(b, each.seed, [rows, columns, 2, 2 * others + 1]);
    const rotary = new RotaryPositionEmbedding(b, 2 * others, { interleaved: one });
    const { cos, sin, interleaved } = rotary.forward(other ? columns : rows);
    const layout = other ? ("bshd" as const) : ("sbhd" as const);
    return { leaves: [x], run: () => functional.rotaryEmbedding(x, cos, sin, { layout, interleaved }) };
  });
  differentiates("embedding", (b, each) => {
    const table = gridLeaf(b, each.seed, [each.others, each.columns]);
    const ids = labels(b, each.seed, 2 * each.rows, each.others).reshape([2, each.rows]);
    return { leaves: [table], run: () => functional.embedding(table, ids) };
  });
  differentiates(
    "crossEntropyLoss, smoothed and not, with rows that are ignored and without",
    ofLeaf(matrix, (x, { rows, columns, seed, one, other }) =>
      functional.crossEntropyLoss(x, labels(x.value.backend, seed, rows, columns), {
        smoothing: one ? 0.25 : 0,
        ...(other ? { ignore: 0 } : {}),
      }),
    ),
    30,
  );
  differentiates(
    "mseLoss",
    ofLeaf(matrix, (x, { seed }) =>
      functional.mseLoss(x, tensor(x.value.backend, gridValues(seed + 1, elementCount(x.shape)), x.shape)),
    ),
  );
});
