/** sum and mean: every set of dimensions, in every type, and refusals. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { mean, sum } from "../../../src/ops/rows/sum.js";
import { Scope } from "../../../src/tensor/scope.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import { mul } from "../../oracle/core/rational.js";
import { sums } from "../../oracle/training/sums.js";
import { assertSame } from "../../values/difference.js";
import { download, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { derivedSeed, drawsOr } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 2 });

const cases = fc
  .array(fc.oneof(fc.integer({ min: 1, max: 5 }), fc.constantFrom(0, 1, 33, 70)), { maxLength: 3 })
  .chain((shape) => {
    const axes = fc.shuffledSubarray([...shape.keys()], { minLength: Math.min(1, shape.length) });
    return fc.record({
      x: wideTensor(shape, { edges: [0, 1, 2 ** -149, 2 ** 24, 65504, 3.4e38] }),
      axes: shape.length === 0 ? fc.constant(undefined) : fc.option(axes, { nil: undefined }),
      keepdim: fc.boolean(),
      outDtype: wideType(),
    });
  });

it("dimensions are summed one after the other, the last one first; a mean is the sum times 1 / n", () => {
  fc.assert(
    fc.property(cases, ({ x, axes, keepdim, outDtype }) => {
      using _scope = new Scope();
      const { shape } = x;
      const reducedAxes = axes ?? [...shape.keys()];
      const expected = sums(wideValues(x), shape, reducedAxes);
      const resultShape = keepdim ? expected.shape : shape.filter((_, axis) => !reducedAxes.includes(axis));
      const share = Math.fround(1 / reducedAxes.reduce((count, axis) => count * (shape[axis] as number), 1));
      // a single dimension is also passed as a number, and counted from the end
      const dim = axes?.length === 1 ? (axes[0] as number) - shape.length : axes;
      const options = { dim, keepdim, outDtype };
      const source = upload(backend(), x);
      assertSame("sum", download(sum(source, options)), rounded(outDtype, resultShape, expected.values));
      const means = expected.values.map((total) => mul(total, share));
      assertSame("mean", download(mean(source, options)), rounded(outDtype, resultShape, means));
    }),
    { numRuns: drawsOr(400), seed: derivedSeed(151) },
  );
});

testInScope("results have the dtype of x by default, and no dimensions if all are summed", () => {
  const x = tensor(backend(), [1, 2, 3, 4], [2, 2]);
  expect(sum(x).shape).toEqual([]);
  expect([...mean(x).dataSync()]).toEqual([2.5]);
  expect(mean(empty(backend(), "bf16", [2, 3]), { dim: 0 }).dtype).toBe("bf16");
});

testInScope("no elements have the sum 0 and the mean NaN", () => {
  const x = empty(backend(), "f32", [0, 2]);
  expect([...sum(x, { dim: 0 }).dataSync()]).toEqual([0, 0]);
  expect([...mean(x, { dim: 0 }).dataSync()]).toEqual([Number.NaN, Number.NaN]);
  expect(sum(x, { dim: 1 }).shape).toEqual([0]);
});

testInScope("dimensions that x does not have, repeated ones and empty lists are refused", () => {
  const x = empty(backend(), "f32", [2, 3]);
  for (const dim of [2, -3, 0.5, [0, -2], [], [0, 5]]) {
    expect(() => sum(x, { dim })).toThrow(ArgumentError);
    expect(() => mean(x, { dim })).toThrow(ArgumentError);
  }
});
