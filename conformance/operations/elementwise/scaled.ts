/** Multiples of tensors, in new memory or in place. */
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
  /** Any number; f32 need not hold it. */
  readonly factor: number;
  /** Where the product goes: `outDtype` is of a new tensor, or of one that is given. */
  readonly into: "new" | "given" | "x";
  readonly outDtype: WideDType;
}

/** Halves of the last place, f32's ends and beyond, and numbers that only f64 holds. */
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

/** Multiples of a tensor of that shape, which `tensor` makes. */
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

/** Where products round to zero, to a subnormal, to infinity. */
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
