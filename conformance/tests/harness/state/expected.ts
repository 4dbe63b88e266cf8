/** The expected bits of a layer's pass, from explicit calls of quantizers and products. */

import type { Backend } from "../../../../src/backends/backend.js";
import {
  Float8CurrentScalingQuantizer,
  Float8Quantizer,
  gemm,
  MXFP8Quantizer,
  type QuantizedTensor,
  type Quantizer,
  type Tensor,
  tensor,
} from "../../../../src/index.js";
import type { Codes, Pass, QuantizedOperand } from "../../../oracle/training/delayed-training.js";
import { SIZE } from "./draws.js";

export function matrixTensor(backend: Backend, codes: Codes): Tensor<"bf16"> {
  return tensor(backend, codes, [SIZE, SIZE], "bf16");
}

type Role = "input" | "weight" | "gradOutput";

function createQuantizer(backend: Backend, { recipe, scale }: QuantizedOperand, role: Role): Quantizer {
  const bothCopies = { rowwise: true, columnwise: true };
  switch (recipe.kind) {
    case "delayed": {
      const format = role === "gradOutput" && recipe.format === "HYBRID" ? "e5m2" : "e4m3";
      return new Float8Quantizer({ format, scale: tensor(backend, [scale]), ...bothCopies });
    }
    case "current": {
      const format = role === "gradOutput" ? "e5m2" : "e4m3";
      return new Float8CurrentScalingQuantizer({ format, pow2Scales: recipe.pow2, ...bothCopies });
    }
    default:
      return new MXFP8Quantizer({
        tile: role === "weight" && recipe.square ? "32x32" : "1x32",
        ...bothCopies,
      });
  }
}

function quantizeMatrix(backend: Backend, matrix: QuantizedOperand, role: Role): QuantizedTensor {
  return createQuantizer(backend, matrix, role).quantize(matrixTensor(backend, matrix.codes));
}

/** y = x·wᵀ. */
export function expectedOutput(backend: Backend, pass: Pass): Tensor {
  const [x, w] = pass.quantized
    ? [
        quantizeMatrix(backend, pass.quantized.x, "input"),
        quantizeMatrix(backend, pass.quantized.weight, "weight"),
      ]
    : [matrixTensor(backend, pass.x), plainWeight(backend, pass)];
  return gemm({ a: w, b: x, outDtype: "bf16", ...splitOptions(pass, false) }).out as Tensor;
}

/** dX = dY·w and dW = dYᵀ·x. */
export function expectedGradients(backend: Backend, pass: Pass, grad: Codes, scale: number) {
  const { quantized } = pass;
  const dy = quantized
    ? quantizeMatrix(backend, { codes: grad, recipe: quantized.x.recipe, scale }, "gradOutput")
    : matrixTensor(backend, grad);
  const x = quantized ? quantizeMatrix(backend, quantized.x, "input") : matrixTensor(backend, pass.x);
  const w = quantized ? quantizeMatrix(backend, quantized.weight, "weight") : plainWeight(backend, pass);
  const options = { outDtype: "bf16", ...splitOptions(pass, true) } as const;
  return {
    x: gemm({ a: w, b: dy, layout: "NN", ...options }).out as Tensor<"bf16">,
    weight: gemm({ a: x, b: dy, layout: "NT", ...options }).out as Tensor<"bf16">,
  };
}

function splitOptions({ quantized }: Pass, useSplitAccumulator: boolean) {
  return quantized ? { useSplitAccumulator } : {};
}

/** The weight of a pass in high precision; a weight that is stored quantized is dequantized. */
function plainWeight(backend: Backend, { layer, primary }: Pass): Tensor {
  if (!primary) return matrixTensor(backend, layer.weight);
  return quantizeMatrix(backend, primary, "weight").dequantize("bf16");
}
