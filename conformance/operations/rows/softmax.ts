/** Softmax over the last dimension, and its gradient. */
import * as fc from "fast-check";
import { softmax, softmaxBackward } from "../../../src/ops/rows/softmax.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/softmax.js";
import { download, type PlainTensor, upload } from "../../values/plain.js";
import { mapRows, rowsOf } from "../../values/rounded.js";
import type { Operation, TypedInputs } from "../operation.js";

export type SoftmaxCase = TypedInputs<"softmax">;

/** y is an arbitrary tensor, not only a result of softmax. */
export type SoftmaxBackwardCase = TypedInputs<"softmaxBackward", "dx">;

/** Exponents where e^x underflows or overflows. */
const EDGES = [0, 2 ** -24, 16.6, 87.3, 88.723, 103.97, 104];

const options = {
  causal: fc.boolean(),
  scale: fc.constantFrom(1, 0.125, 1 / Math.sqrt(80), -1, 0, 1e-60, 2 ** 127, 2 ** -149),
  outDtype: wideType(),
};

/** Softmax calls on tensors of one shape; `tensor` draws them. */
export function softmaxCase(
  shape: Shape,
  tensor: (shape: Shape) => fc.Arbitrary<PlainTensor<WideDType>>,
): fc.Arbitrary<SoftmaxCase> {
  return fc.record({ x: tensor(shape), ...options });
}

/** Backward calls on tensors of one shape; `tensor` draws them. */
export function softmaxBackwardCase(
  shape: Shape,
  tensor: (shape: Shape) => fc.Arbitrary<PlainTensor<WideDType>>,
): fc.Arbitrary<SoftmaxBackwardCase> {
  return fc.record({ grad: tensor(shape), y: tensor(shape), ...options });
}

/** The number of unmasked elements of each row. */
function lengths({ shape, matrix }: PlainTensor, causal: boolean): number[] {
  const [rows, columns] = matrix;
  const period = shape.at(-2) ?? 1;
  return Array.from({ length: rows }, (_, row) =>
    oracle.countUnmasked(row % period, [period, columns], causal),
  );
}

export const softmaxOperation: Operation<SoftmaxCase> = {
  arbitrary: laneShape().chain((shape) => softmaxCase(shape, (of) => wideTensor(of, { edges: EDGES }))),
  run: (backend, { x, ...rule }) => ({ out: download(softmax(upload(backend, x), rule)) }),
  oracle({ x, causal, scale, outDtype }) {
    const length = lengths(x, causal);
    return { out: mapRows(x, outDtype, (row, i) => oracle.softmax(row, length[i] as number, scale)) };
  },
};

export const softmaxBackwardOperation: Operation<SoftmaxBackwardCase> = {
  arbitrary: laneShape().chain((shape) => softmaxBackwardCase(shape, wideTensor)),
  run: (backend, { grad, y, ...rule }) => ({
    dx: download(softmaxBackward(upload(backend, grad), upload(backend, y), rule)),
  }),
  oracle({ grad, y, causal, scale, outDtype }) {
    const length = lengths(y, causal);
    const shares = rowsOf(y);
    const dx = mapRows(grad, outDtype, (row, i) =>
      oracle.softmaxBackward(row, shares[i] as number[], length[i] as number, scale),
    );
    return { dx };
  },
};
