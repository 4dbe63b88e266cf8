/** gather and its gradient: laws, dimensions, threads and refusals. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { swapAxes } from "../../../src/ops/layout/layout.js";
import { gather, gatherBackward } from "../../../src/ops/rows/gather.js";
import { softmax, softmaxBackward } from "../../../src/ops/rows/softmax.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import { download, upload } from "../../values/plain.js";
import { derivedSeed, drawsOr } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();

describeLaws(backend, ["gather", "gatherBackward"], { runs: 300, seed: derivedSeed(162) });

describe("results do not depend on the number of threads", () => {
  const values = Float32Array.from(words(3, 700 * 300), (bits) => bits / 2 ** 32);
  const indices = Int32Array.from(words(4, 700 * 20), (bits) => bits % 300);
  const inputs = (tensorBackend: Tensor["backend"]) => ({
    x: tensor(tensorBackend, values, [700, 300]),
    ids: tensor(tensorBackend, indices, [700, 20], "i32"),
  });
  testEqualBits("gather", useThreads(), (backend) => {
    const { x, ids } = inputs(backend);
    const out = gather(x, 1, ids);
    return { out: download(out), grad: download(gatherBackward(out, 1, ids, 300)) };
  });
});

testInScope("an index counts along the dimension, as in torch.gather", () => {
  const x = tensor(backend(), [1, 2, 3, 4, 5, 6], [2, 3]);
  const rows = tensor(backend(), Int32Array.of(1, 0, 1), [1, 3], "i32");
  expect([...gather(x, 0, rows).dataSync()]).toEqual([4, 2, 6]);
  const columns = tensor(backend(), Int32Array.of(2, 2, 0, 3), [2, 2], "i32");
  expect([...gather(x, -1, columns).dataSync()]).toEqual([3, 3, 4, Number.NaN]);
  const grad = tensor(backend(), [1, 10, 100, 1000], [2, 2]);
  expect([...gatherBackward(grad, 1, columns, 3).dataSync()]).toEqual([0, 0, 11, 100, 0, 0]);
});

const cases = wideType().chain((dtype) =>
  fc.record({
    x: wideTensor([3, 5, 4], { dtype }),
    upstream: wideTensor([3, 5, 4], { dtype }),
    dim: fc.nat({ max: 2 }),
    seed: fc.nat(),
  }),
);
const PARAMETERS = { numRuns: drawsOr(100), seed: derivedSeed(163) };

it("the differentiable function has the operation's bits, and its gradient", () => {
  fc.assert(
    fc.property(cases, ({ x, upstream, dim, seed }) => {
      using _scope = new Scope();
      const size = x.shape[dim] as number;
      const index = tensor(
        backend(),
        Int32Array.from(words(seed, 60), (bits) => bits % size),
        [3, 5, 4],
        "i32",
      );
      const source = new Variable(upload(backend(), x), true);
      const result = functional.gather(source, dim - 3, index);
      result.backward(upload(backend(), upstream));
      expect(download(result.tensor)).toEqual(download(gather(source.tensor, dim, index)));
      const grad = gatherBackward(upload(backend(), upstream), dim, index, size);
      expect(download(source.grad as Tensor)).toEqual(download(grad));
      source.zeroGrad();
    }),
    PARAMETERS,
  );
});

it("the differentiable softmax has the operation's bits along every dimension, and its gradient", () => {
  fc.assert(
    fc.property(cases, ({ x, upstream, dim }) => {
      using _scope = new Scope();
      const source = new Variable(upload(backend(), x), true);
      const result = functional.softmax(source, { dim });
      result.backward(upload(backend(), upstream));
      const y = softmax(swapAxes(source.tensor, dim, 2));
      const grad = softmaxBackward(swapAxes(upload(backend(), upstream), dim, 2), y);
      expect(download(result.tensor)).toEqual(download(swapAxes(y, dim, 2)));
      expect(download(source.grad as Tensor)).toEqual(download(swapAxes(grad, dim, 2)));
      source.zeroGrad();
    }),
    PARAMETERS,
  );
});

testInScope("indices that do not fit are refused", () => {
  const x = empty(backend(), "f32", [2, 3]);
  const index = (shape: readonly number[]) => empty(backend(), "i32", shape);
  expect(() => gather(x, 1, index([3, 3]))).toThrow(ShapeError);
  expect(() => gather(x, 1, index([2]))).toThrow(ShapeError);
  expect(() => gather(x, 2, index([2, 3]))).toThrow(ArgumentError);
  expect(() => gather(x, 1, empty(backend(), "f32", [2, 3]))).toThrow(DTypeError);
  expect(() => gatherBackward(x, 1, index([2, 2]), 3)).toThrow(ShapeError);
});
