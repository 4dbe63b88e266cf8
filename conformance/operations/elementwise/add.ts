/** The operation `add`: elementwise sums, into a new tensor or in place. */
import * as fc from "fast-check";
import { add } from "../../../src/ops/elementwise/add.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/elementwise/add.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Operation } from "../operation.js";

export interface AddCase {
  readonly x: PlainTensor<WideDType>;
  readonly y: PlainTensor<WideDType>;
  /** The output: a new tensor of `outDtype`, an existing tensor of `outDtype`, or one of the operands. */
  readonly into: "new" | "given" | "x" | "y";
  readonly outDtype: WideDType;
}

/** Sums of two tensors of one shape; `tensor` draws the operands. */
export function addCase(
  shape: Shape,
  tensor: (shape: Shape) => fc.Arbitrary<PlainTensor<WideDType>>,
): fc.Arbitrary<AddCase> {
  const into = fc.constantFrom("new" as const, "given" as const, "x" as const, "y" as const);
  return fc
    .record({ x: tensor(shape), y: tensor(shape), into, outDtype: wideType() })
    .map((input) =>
      input.into === "x" || input.into === "y" ? { ...input, outDtype: input[input.into].dtype } : input,
    );
}

/** Operands that absorb each other, cancel, or overflow. */
const EDGES = [0, 1, 2 ** -24, 2 ** 24, 2 ** -149, 65520, 2 ** 127, 3.4e38];

export const addOperation: Operation<AddCase> = {
  arbitrary: laneShape(2048).chain((shape) => addCase(shape, (of) => wideTensor(of, { edges: EDGES }))),
  run(backend, { x, y, into, outDtype }) {
    const [left, right] = [upload(backend, x), upload(backend, y)];
    if (into === "new") return { out: download(add(left, right, { outDtype })) };
    const target = into === "given" ? upload(backend, rounded(outDtype, x.shape, [...wideValues(x)])) : left;
    const out = into === "y" ? right : target;
    add(left, right, { out });
    return { out: download(out) };
  },
  oracle: ({ x, y, outDtype }) => ({
    out: rounded(outDtype, x.shape, oracle.add(wideValues(x), wideValues(y))),
  }),
};
