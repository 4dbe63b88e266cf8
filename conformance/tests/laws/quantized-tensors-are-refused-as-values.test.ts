/**
 * A quantized tensor is not a Tensor: operations that read values refuse it with a message that names it, also in plain
 * JavaScript.
 */
import { expect, it } from "vitest";
import { DTypeError } from "../../../src/errors.js";
import { decode, encode } from "../../../src/ops/cast/cast.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { activation } from "../../../src/ops/elementwise/activation.js";
import { add, scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { batchedGemm } from "../../../src/ops/gemm/batched.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { swapAxes, transpose } from "../../../src/ops/layout/layout.js";
import { hadamard } from "../../../src/ops/quantize/hadamard.js";
import { embedding } from "../../../src/ops/rows/embedding.js";
import { crossEntropy, mse } from "../../../src/ops/rows/loss.js";
import { columnSum, layerNorm } from "../../../src/ops/rows/norm.js";
import { softmax } from "../../../src/ops/rows/softmax.js";
import { gradNorm } from "../../../src/ops/update/grad-norm.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({});

type Call = (quantized: Tensor, x: Tensor) => unknown;

const CALLS: Readonly<Record<string, Call>> = {
  activation: (q) => activation(q, { kind: "gelu" }),
  add: (q, x) => add(q, x),
  "add, its second operand": (q, x) => add(x, q),
  "add, its result": (q, x) => add(x, x, { out: q }),
  encode: (q) => encode(q, { format: "e4m3" }),
  embedding: (q) => embedding(q, tensor(backend(), Int32Array.of(0), [1], "i32")),
  "gemm's addend": (q, x) => gemm({ a: x, b: x, c: q }),
  "gemm's result": (q, x) => gemm({ a: x, b: x, out: q }),
  batchedGemm: (q, x) => batchedGemm({ a: x.reshape([1, 32, 32]), b: q }),
  gradNorm: (q, x) => gradNorm([x, q], { maxNorm: 1 }),
  hadamard: (q) => hadamard(q, 0),
  decode: (q) => decode(q, { format: "e4m3" }),
  transpose: (q) => transpose(q),
  swapAxes: (q) => swapAxes(q, 0, 1),
  crossEntropy: (q) => crossEntropy(q, tensor(backend(), new Int32Array(32), [32], "i32")),
  mse: (q, x) => mse(x, q),
  columnSum: (q) => columnSum(q, "f32"),
  layerNorm: (q, x) => layerNorm(q, x.view(0, [32]), x.view(0, [32]), { eps: 1e-5 }),
  quantize: (q) => new MXFP8Quantizer().quantize(q),
  scaled: (q) => scaled(q, 2),
  softmax: (q) => softmax(q),
};

it.each(Object.entries(CALLS))("%s", (_, call) => {
  using _scope = new Scope();
  const x = zeros(backend(), "bf16", [32, 32]);
  const quantized = new MXFP8Quantizer().quantize(x) as unknown as Tensor;
  expect(() => call(quantized, x)).toThrow(DTypeError);
  expect(() => call(quantized, x)).toThrow(/QuantizedTensor/);
});
