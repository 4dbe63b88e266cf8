/** cumsum and its gradient: laws, dimensions and threads. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import * as functional from "../../../src/functional/index.js";
import { tensor } from "../../../src/ops/create.js";
import { swapAxes } from "../../../src/ops/layout/layout.js";
import { cumsum } from "../../../src/ops/rows/cumsum.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import { download, upload } from "../../values/plain.js";
import { derivedSeed, drawsOr } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();

describeLaws(backend, ["cumsum"], { runs: 300, seed: derivedSeed(164) });

describe("results do not depend on the number of threads", () => {
  const values = Float32Array.from(words(5, 300 * 700), (bits) => bits / 2 ** 32);
  testEqualBits("cumsum", useThreads(), (backend) => {
    const x = tensor(backend, values, [300, 700]);
    return { out: download(cumsum(x, 1)), reverse: download(cumsum(x, 1, { reverse: true })) };
  });
});

testInScope("sums begin at +0, are rounded one by one, and may begin at the last element", () => {
  const sums = (values: readonly number[], reverse: boolean) => [
    ...cumsum(tensor(backend(), values), 0, { reverse }).dataSync(),
  ];
  expect(sums([1, 2, 3], false)).toEqual([1, 3, 6]);
  expect(sums([1, 2, 3], true)).toEqual([6, 5, 3]);
  expect(sums([-0, -0], false)).toEqual([0, 0]);
  // 2^24 + 1 is rounded to 2^24, so the order matters
  expect(sums([2 ** 24, 1, 1], false)).toEqual([2 ** 24, 2 ** 24, 2 ** 24]);
  expect(sums([2 ** 24, 1, 1], true)).toEqual([2 ** 24 + 2, 2, 1]);
  expect(sums([1, Number.NaN, 1], false)).toEqual([1, Number.NaN, Number.NaN]);
});

const cases = wideType().chain((dtype) =>
  fc.record({
    x: wideTensor([3, 5, 4], { dtype }),
    upstream: wideTensor([3, 5, 4], { dtype }),
    dim: fc.nat({ max: 2 }),
    reverse: fc.boolean(),
  }),
);

it("the differentiable function has the operation's bits along every dimension, and its gradient", () => {
  fc.assert(
    fc.property(cases, ({ x, upstream, dim, reverse }) => {
      using _scope = new Scope();
      const alongRows = (cumsumOf: Tensor, isReversed: boolean) =>
        swapAxes(cumsum(swapAxes(cumsumOf, dim, 2), 2, { reverse: isReversed }), dim, 2);
      const source = new Variable(upload(backend(), x), true);
      const result = functional.cumsum(source, dim - 3, { reverse });
      result.backward(upload(backend(), upstream));
      expect(download(result.tensor)).toEqual(download(alongRows(source.tensor, reverse)));
      expect(download(source.grad as Tensor)).toEqual(
        download(alongRows(upload(backend(), upstream), !reverse)),
      );
      source.zeroGrad();
    }),
    { numRuns: drawsOr(100), seed: derivedSeed(165) },
  );
});
