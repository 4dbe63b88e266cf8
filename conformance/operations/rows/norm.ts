/** LayerNorm and RMSNorm, forward and backward, and column sums. */
import * as fc from "fast-check";
import { columnSum, layerNorm, normBackward, rmsNorm } from "../../../src/ops/rows/norm.js";
import { asMatrix, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/norm.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Answer, Operation, TypedInputs } from "../operation.js";

interface Parameters {
  /** [K] */
  readonly gamma: PlainTensor<WideDType>;
  readonly zeroCenteredGamma: boolean;
}

/** LayerNorm, or RMSNorm without beta. */
export interface NormCase extends Parameters {
  readonly x: PlainTensor<WideDType>;
  readonly beta?: PlainTensor<WideDType> | undefined;
  readonly eps: number;
  readonly outDtype: WideDType;
}

/** The gradients of LayerNorm, or of RMSNorm without mean. */
export interface NormBackwardCase extends Parameters {
  readonly grad: PlainTensor<WideDType>;
  readonly x: PlainTensor<WideDType>;
  /** The statistics of x's rows, or arbitrary numbers. */
  readonly mean?: PlainTensor<"f32"> | undefined;
  readonly rstd: PlainTensor<"f32">;
}

export type ColumnSumCase = TypedInputs<"columnSum">;

/** Values of eps. */
export const smallTerms = fc.constantFrom(1e-5, 0, 1e-12, 1, 2 ** -149, 1e-60, 1e30);

/** gamma, and beta of the same type. */
export function parameters(shape: Shape) {
  const [, columns] = asMatrix(shape);
  return wideType()
    .chain((dtype) => {
      const vector = wideTensor([columns], { dtype, edges: [0, 1] });
      return fc.record({
        gamma: vector,
        beta: fc.option(vector, { nil: undefined, freq: 2 }),
        zeroCenteredGamma: fc.boolean(),
      });
    })
    .map((drawn): Parameters & Pick<NormCase, "beta"> => drawn);
}

function normalization(
  { gamma, zeroCenteredGamma }: Parameters,
  centered: boolean,
  beta: PlainTensor<WideDType> | undefined,
  eps: number,
): oracle.Normalization {
  const values = (x: PlainTensor<WideDType>): number[] => Array.from(wideValues(x));
  return {
    gamma: values(gamma),
    centered,
    eps: eps,
    zeroCenteredGamma,
    ...(beta ? { beta: values(beta) } : {}),
  };
}

export const normOperation: Operation<NormCase> = {
  arbitrary: laneShape().chain((shape) =>
    fc
      .tuple(fc.record({ x: wideTensor(shape), eps: smallTerms, outDtype: wideType() }), parameters(shape))
      .map(([input, parts]) => ({ ...input, ...parts })),
  ),
  run(backend, { x, gamma, beta, ...options }) {
    const [source, scale] = [upload(backend, x), upload(backend, gamma)];
    const { out, mean, rstd } = beta
      ? layerNorm(source, scale, upload(backend, beta), options)
      : rmsNorm(source, scale, options);
    const answer = { out: download(out), rstd: download(rstd) };
    return mean ? { ...answer, mean: download(mean) } : answer;
  },
  oracle: normAnswer,
};

/** The oracle's result and statistics of a norm. */
export function normAnswer({ x, beta, eps, outDtype, ...weights }: NormCase) {
  const centered = beta !== undefined;
  const { out, mean, rstd } = oracle.norm(rowsOf(x), normalization(weights, centered, beta, eps));
  const rows = [x.matrix[0]];
  const answer = { out: rounded(outDtype, x.shape, out.flat()), rstd: rounded("f32", rows, rstd) };
  return centered ? { ...answer, mean: rounded("f32", rows, mean) } : answer;
}

/** The statistics that the forward pass saves. */
function saved(x: PlainTensor<WideDType>, weights: Parameters, centered: boolean, eps: number) {
  const { mean, rstd } = oracle.norm(rowsOf(x), normalization(weights, centered, undefined, eps));
  const rows = [x.matrix[0]];
  const kept = { rstd: rounded("f32", rows, rstd) };
  return centered ? { ...kept, mean: rounded("f32", rows, mean) } : kept;
}

export const normBackwardOperation: Operation<NormBackwardCase> = {
  arbitrary: laneShape().chain((shape) => {
    const row = wideTensor([asMatrix(shape)[0]], { dtype: "f32" });
    const input = fc.record({ grad: wideTensor(shape), x: wideTensor(shape) });
    const exact = fc
      .tuple(input, parameters(shape), smallTerms)
      .map(([drawn, { beta, ...weights }, eps]) => ({
        ...drawn,
        ...weights,
        ...saved(drawn.x, weights, beta !== undefined, eps),
      }));
    const any = fc
      .tuple(input, parameters(shape), fc.record({ mean: row, rstd: row }))
      .map(([drawn, { beta, ...weights }, { mean, rstd }]) => ({
        ...drawn,
        ...weights,
        ...(beta ? { mean, rstd } : { rstd }),
      }));
    return fc.oneof({ weight: 2, arbitrary: exact }, any);
  }),
  run(backend, { grad, x, gamma, mean, rstd, zeroCenteredGamma }) {
    const uploads = { grad: upload(backend, grad), x: upload(backend, x), gamma: upload(backend, gamma) };
    const statistics = mean
      ? { mean: upload(backend, mean), rstd: upload(backend, rstd) }
      : { rstd: upload(backend, rstd) };
    const { dx, dgamma, dbeta } = normBackward({ ...uploads, ...statistics, zeroCenteredGamma });
    const answer = { dx: download(dx), dgamma: download(dgamma) };
    return dbeta ? { ...answer, dbeta: download(dbeta) } : answer;
  },
  oracle({ grad, x, mean, rstd, ...weights }): Answer {
    const [rows] = x.matrix;
    const statistics = {
      out: [],
      mean: mean ? Array.from(wideValues(mean)) : Array.from({ length: rows }, () => 0),
      rstd: Array.from(wideValues(rstd)),
    };
    const normalized = normalization(weights, mean !== undefined, undefined, 0);
    const { dx, dgamma, dbeta } = oracle.normBackward(rowsOf(grad), rowsOf(x), normalized, statistics);
    const { dtype, shape } = weights.gamma;
    const answer = { dx: rounded(grad.dtype, x.shape, dx.flat()), dgamma: rounded(dtype, shape, dgamma) };
    return mean ? { ...answer, dbeta: rounded(dtype, shape, dbeta) } : answer;
  },
};

export const columnSumOperation: Operation<ColumnSumCase> = {
  arbitrary: laneShape(2048).chain((shape) => fc.record({ x: wideTensor(shape), outDtype: wideType() })),
  run: (backend, { x, outDtype }) => ({ out: download(columnSum(upload(backend, x), outDtype)) }),
  oracle: ({ x, outDtype }) => ({
    out: rounded(outDtype, [x.matrix[1]], columnSums(rowsOf(x), x.matrix[1])),
  }),
};

/** The column sums of a matrix, in f32. */
export function columnSums(rows: oracle.Matrix, columns: number): number[] {
  return Array.from({ length: columns }, (_, j) => oracle.chunkedSum(rows.map((row) => row[j] as number)));
}
