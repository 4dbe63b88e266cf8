/** Dropout of elements. */
import * as fc from "fast-check";
import { dropout } from "../../../src/ops/elementwise/dropout.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { randomSource } from "../../arbitraries/formats.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/elementwise/dropout.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Operation, TypedInputs } from "../operation.js";

export type DropoutCase = TypedInputs<"dropout">;

/** Probabilities at which the threshold changes, and the limits of the domain. */
const PROBABILITIES = [0, 2 ** -18, 2 ** -17, 2 ** -16, 0.1, 0.5, 1 - 2 ** -16, 1 - 2 ** -17, 1 - 2 ** -53];

/** Dropouts of tensors that `tensor` draws. */
export function dropoutCase(
  shape: Shape,
  tensor: (shape: Shape) => fc.Arbitrary<PlainTensor<WideDType>>,
): fc.Arbitrary<DropoutCase> {
  return fc.record({
    x: tensor(shape),
    probability: fc.oneof(fc.constantFrom(...PROBABILITIES), fc.double({ min: 0, max: 0.99, noNaN: true })),
    random: randomSource(),
    outDtype: wideType(),
  });
}

export const dropoutOperation: Operation<DropoutCase> = {
  arbitrary: laneShape(2048).chain((shape) =>
    dropoutCase(shape, (each) => wideTensor(each, { edges: [0, 2 ** -149, 65504, 3.4e38] })),
  ),
  run: (backend, { x, random, ...options }) => ({
    out: download(dropout(upload(backend, x), { ...options, ...random })),
  }),
  oracle: ({ x, probability, random, outDtype }) => ({
    out: rounded(outDtype, x.shape, oracle.dropout(Array.from(wideValues(x)), { probability, ...random })),
  }),
};
