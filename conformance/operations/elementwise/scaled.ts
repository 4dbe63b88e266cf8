/** The operation `scaled`: a tensor times a number, into a new tensor or in place. */
import * as fc from "fast-check";
import { scaled } from "../../../src/ops/elementwise/scaled.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { laneShape, wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/elementwise/scaled.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { SPECIALS } from "../../values/samples.js";
import type { Operation } from "../operation.js";

export interface ScaledCase {
  readonly x: PlainTensor<WideDType>;
  /** Any f64; the operation rounds it to f32. */
  readonly factor: number;
  /** The output: a new tensor of `outDtype`, an existing tensor of `outDtype`, or x. */
  readonly into: "new" | "given" | "x";
  readonly outDtype: WideDType;
}

/** Ties in the last place, the limits of f32, values beyond them, and values that f32 rounds. */
const FACTORS = [
  0.1,
  1 / 3,
  1 + 2 ** -23,
  2 ** -24,
  2 ** -126,
  2 ** 127,
  3.4e38,
  1e300,
  -1e-300,
  ...SPECIALS,
];

/** Products of a number and a tensor of this shape; `tensor` draws it. */
export function scaledCase(
  shape: Shape,
  tensor: (shape: Shape) => fc.Arbitrary<PlainTensor<WideDType>>,
): fc.Arbitrary<ScaledCase> {
  return fc
    .record({
      x: tensor(shape),
      factor: fc.oneof(fc.constantFrom(...FACTORS), fc.double()),
      into: fc.constantFrom("new" as const, "given" as const, "x" as const),
      outDtype: wideType(),
    })
    .map((input) => (input.into === "x" ? { ...input, outDtype: input.x.dtype } : input));
}

/** Elements whose products round to zero, to a subnormal, or to infinity. */
const EDGES = [0, 1, 2 ** -149, 2 ** -126, 2 ** -24, 65520, 2 ** 127, 3.4e38];

export const scaledOperation: Operation<ScaledCase> = {
  arbitrary: laneShape(2048).chain((shape) => scaledCase(shape, (of) => wideTensor(of, { edges: EDGES }))),
  run(backend, { x, factor, into, outDtype }) {
    const source = upload(backend, x);
    if (into === "new") return { out: download(scaled(source, factor, { outDtype })) };
    const out = into === "x" ? source : upload(backend, rounded(outDtype, x.shape, [...wideValues(x)]));
    scaled(source, factor, { out });
    return { out: download(out) };
  },
  oracle: ({ x, factor, outDtype }) => ({
    out: rounded(outDtype, x.shape, oracle.scaled(wideValues(x), factor)),
  }),
};
