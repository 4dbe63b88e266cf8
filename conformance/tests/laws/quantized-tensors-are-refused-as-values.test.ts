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
  activation: (quantized) => activation(quantized, { kind: "gelu" }),
  add: (quantized, x) => add(quantized, x),
  "add, its second operand": (quantized, x) => add(x, quantized),
  "add, its result": (quantized, x) => add(x, x, { out: quantized }),
  encode: (quantized) => encode(quantized, { format: "e4m3" }),
  embedding: (quantized) => embedding(quantized, tensor(backend(), Int32Array.of(0), [1], "i32")),
  "gemm's addend": (quantized, x) => gemm({ a: x, b: x, c: quantized }),
  "gemm's result": (quantized, x) => gemm({ a: x, b: x, out: quantized }),
  batchedGemm: (quantized, x) => batchedGemm({ a: x.reshape([1, 32, 32]), b: quantized }),
  gradNorm: (quantized, x) => gradNorm([x, quantized], { maxNorm: 1 }),
  hadamard: (quantized) => hadamard(quantized, 0),
  decode: (quantized) => decode(quantized, { format: "e4m3" }),
  transpose: (quantized) => transpose(quantized),
  swapAxes: (quantized) => swapAxes(quantized, 0, 1),
  crossEntropy: (quantized) => crossEntropy(quantized, tensor(backend(), new Int32Array(32), [32], "i32")),
  mse: (quantized, x) => mse(x, quantized),
  columnSum: (quantized) => columnSum(quantized, "f32"),
  layerNorm: (quantized, x) => layerNorm(quantized, x.view(0, [32]), x.view(0, [32]), { eps: 1e-5 }),
  quantize: (quantized) => new MXFP8Quantizer().quantize(quantized),
  scaled: (quantized) => scaled(quantized, 2),
  softmax: (quantized) => softmax(quantized),
};

it.each(Object.entries(CALLS))("%s", (_, call) => {
  using _scope = new Scope();
  const x = zeros(backend(), "bf16", [32, 32]);
  const quantized = new MXFP8Quantizer().quantize(x) as unknown as Tensor;
  expect(() => call(quantized, x)).toThrow(DTypeError);
  expect(() => call(quantized, x)).toThrow(/QuantizedTensor/);
});
