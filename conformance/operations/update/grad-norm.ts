/** The norm of gradients and the clipping factor. */
import * as fc from "fast-check";
import { gradNorm, pieceSums, sumPieces } from "../../../src/ops/update/grad-norm.js";
import { elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { laneShape, wideTensor } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/update/grad-norm.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Operation } from "../operation.js";

export interface GradNormCase {
  readonly grads: readonly PlainTensor<WideDType>[];
  readonly maxNorm: number;
}

/** Elements whose squares underflow or overflow. */
const EDGES = [0, 2 ** -75, 2 ** -63, 2 ** 63.5, 2 ** 64];

function grads(shape: fc.Arbitrary<Shape>, most: number) {
  return fc.array(
    shape.chain((drawn) => wideTensor(drawn, { edges: EDGES })),
    { minLength: 1, maxLength: most },
  );
}

/** Shapes of about 4096 elements, the size of one piece. */
const pieces = fc.constantFrom<Shape>([4096], [4095], [4097], [3, 2741], [8192], []);

export const gradNormOperation: Operation<GradNormCase> = {
  arbitrary: fc.record({
    grads: fc.oneof(grads(laneShape(200), 4), grads(pieces, 2), grads(fc.constantFrom([1], [2, 3], [0]), 70)),
    maxNorm: fc.constantFrom(1, 0, 0.1, 1e3, 1e-60, 2 ** -149, 3e38),
  }),
  run(backend, { grads, maxNorm }) {
    const { norm, factor } = gradNorm(
      grads.map((grad) => upload(backend, grad)),
      { maxNorm },
    );
    return { norm: download(norm), factor: download(factor) };
  },
  oracle({ grads, maxNorm }) {
    const { norm, factor } = oracle.gradNorm(
      grads.map((grad) => Array.from(wideValues(grad))),
      maxNorm,
    );
    return { norm: rounded("f32", [1], [norm]), factor: rounded("f32", [1], [factor]) };
  },
};

/** The values of one tensor. */
export interface PiecesCase {
  readonly x: PlainTensor<WideDType>;
}

/** The sums of squares of pieces. */
export const pieceSumsOperation: Operation<PiecesCase> = {
  arbitrary: fc.record({
    x: fc
      .oneof(laneShape(200), pieces, fc.constantFrom<Shape>([0], [2, 3]))
      .chain((shape) => wideTensor(shape, { edges: EDGES })),
  }),
  run(backend, { x }) {
    return { sums: download(pieceSums(upload(backend, x))) };
  },
  oracle({ x }) {
    const sums = oracle.pieceSums(Array.from(wideValues(x)));
    return { sums: rounded("f32", [sums.length], sums) };
  },
};

/** Sums of pieces, none of them negative. */
export interface SumsCase {
  readonly sums: PlainTensor<"f32">;
}

/** The sum of a tensor's squares from the sums of its pieces. */
export const sumPiecesOperation: Operation<SumsCase> = {
  arbitrary: fc.record({
    sums: laneShape(200).chain((shape) => wideTensor([elementCount(shape)], { edges: EDGES, dtype: "f32" })),
  }),
  run(backend, { sums }) {
    return { out: download(sumPieces(upload(backend, sums))) };
  },
  oracle({ sums }) {
    return { out: rounded("f32", [1], [oracle.sumPieces(Array.from(wideValues(sums)))]) };
  },
};
