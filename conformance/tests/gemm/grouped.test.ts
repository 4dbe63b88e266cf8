/** A group of products gives the results of each product by itself. */
import { expect, it } from "vitest";
import {
  encode,
  type GemmOptions,
  gemm,
  groupedGemm,
  MXFP8Quantizer,
  normal,
  Scope,
  ShapeError,
  type Tensor,
  tensor,
} from "../../../src/index.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const matrix = (rows: number, columns: number, seed: bigint): Tensor =>
  encode(tensor(backend(), normal({ seed, offset: 0n }, rows * columns, 1), [rows, columns]), {
    format: "bf16",
  });

function products(): GemmOptions[] {
  const q = new MXFP8Quantizer({ columnwise: true });
  const [w0, w1] = [matrix(32, 64, 1n), matrix(16, 64, 2n)];
  return [
    { x: matrix(5, 64, 3n), w: w0, bias: matrix(1, 32, 4n).reshape([32]) },
    { x: q.quantize(matrix(7, 64, 5n)), w: q.quantize(w1), outDtype: "f32" },
    { x: matrix(0, 64, 6n), w: w0 },
    { a: w0, b: matrix(9, 32, 7n), layout: "NN", gelu: true },
  ];
}

it("groupedGemm has the results of gemm for products of any shape and options", () => {
  using _ = new Scope();
  const bits = (tensors: readonly (Tensor | undefined)[]): unknown => tensors.map((each) => each?.dataSync());
  const calls = products();
  const each = calls.map((call) => gemm(call));
  const grouped = groupedGemm(calls);
  expect(grouped.map(({ out, preGelu }) => bits([out, preGelu]))).toEqual(
    each.map(({ out, preGelu }) => bits([out, preGelu])),
  );
  expect(grouped.map(({ out }) => out.shape)).toEqual([
    [5, 32],
    [7, 16],
    [0, 32],
    [9, 64],
  ]);
  expect(groupedGemm([])).toEqual([]);
});

it("a refused product leaves no result of the products before it", () => {
  using _ = new Scope();
  const calls = [...products(), { x: matrix(4, 32, 8n), w: matrix(4, 64, 9n) }];
  const before = backend().memoryUse().live;
  expect(() => groupedGemm(calls)).toThrow(ShapeError);
  expect(backend().memoryUse().live).toBe(before);
});
