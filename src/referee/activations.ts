/** Models of activation functions and their gradients. Each step of a formula is rounded to f32; an `fma` is one step. */
import type { Backend } from "../backends/backend.js";
import { ShapeError } from "../errors.js";
import type { Call, Model } from "./call.js";
import { roundThrough } from "./conversions.js";
import { applyMath, fma } from "./float32.js";
import { narrow } from "./moves.js";
import { NotModelled } from "./not-modelled.js";
import { computeValue, mapElements } from "./pointwise.js";

const { fround, max, min } = Math;

/** 1 / (1 + expf(-x)). */
function logistic(backend: Backend, x: Float32Array): Float32Array {
  const power = applyMath(
    backend,
    "expf",
    mapElements((v) => -v, x),
  );
  return mapElements((e) => 1 / fround(1 + e), power);
}

/** The model of a function of `self`. */
function selfModel(compute: (backend: Backend, x: Float32Array) => Float32Array): Model {
  return (call) => computeValue(call, [call.tensor("self")], (x) => compute(call.backend, x));
}

/** The model of a gradient. Its operands are `grad_output` and `self`, or another named tensor instead of `self`. */
function gradientModel(
  compute: (backend: Backend, grad: Float32Array, x: Float32Array, call: Call) => Float32Array,
  name = "self",
): Model {
  return (call) => {
    const [grad, x] = [call.tensor("grad_output"), call.tensor(name)];
    if (grad.dtype !== x.dtype) throw new NotModelled(`${grad.dtype} with ${x.dtype}`);
    return computeValue(call, [grad, x], (g, v) => compute(call.backend, g, v as Float32Array, call));
  };
}

export const sigmoid = selfModel(logistic);

/** x / (1 + expf(-x)) (ActivationSiluKernel.cu). */
export const silu = selfModel((backend, x) => {
  const power = applyMath(
    backend,
    "expf",
    mapElements((v) => -v, x),
  );
  return mapElements((v, e) => v / fround(1 + e), x, power);
});

/** grad * s * fma(x, 1 - s, 1), with s the sigmoid (ActivationSiluKernel.cu). */
export const siluBackward = gradientModel((backend, grad, x) =>
  mapElements((g, v, s) => fround(g * s) * fma(v, fround(1 - s), 1), grad, x, logistic(backend, x)),
);

/** Rounds to the dtype of `output`: the operators of PyTorch's Half and BFloat16 round each result to 16 bits. */
function roundToOutput(backend: Backend, call: Call): (values: Float32Array) => Float32Array {
  const { dtype } = call.tensor("output");
  return (values) => roundThrough(backend, dtype, values);
}

/** grad * (1 - y) * y, each step rounded to the dtype (BinaryMiscBackwardOpsKernels.cu). */
export const sigmoidBackward = gradientModel((backend, grad, y, call) => {
  const roundToDType = roundToOutput(backend, call);
  const complement = roundToDType(mapElements((v) => 1 - v, y));
  return mapElements((p, v) => p * v, roundToDType(mapElements((g, r) => g * r, grad, complement)), y);
}, "output");

/** grad * (1 - y * y), each step rounded to the dtype; in f32, 1 - y * y is one fma (BinaryMiscBackwardOpsKernels.cu). */
export const tanhBackward = gradientModel((backend, grad, y, call) => {
  if (call.tensor("output").dtype === "F32") return mapElements((g, v) => g * fma(-v, v, 1), grad, y);
  const roundToDType = roundToOutput(backend, call);
  const complement = roundToDType(mapElements((q) => 1 - q, roundToDType(mapElements((v) => v * v, y))));
  return mapElements((g, r) => g * r, grad, complement);
}, "output");

/** sqrt(2 / pi), sqrt(1/2), and the factor of x^3 in the tanh approximation of GELU, as f32. */
const BETA = fround(Math.SQRT2 * (2 / Math.sqrt(Math.PI)) * 0.5);
const ALPHA = fround(Math.SQRT1_2);
const KAPPA = fround(0.044715);

/** tanhf(beta * fma(kappa, x^3, x)). */
function tanhInner(backend: Backend, x: Float32Array): Float32Array {
  const inner = mapElements((v) => BETA * fma(KAPPA, fround(fround(v * v) * v), v), x);
  return applyMath(backend, "tanhf", inner);
}

/** erff(x * sqrt(1/2)). */
function erfInner(backend: Backend, x: Float32Array): Float32Array {
  return applyMath(
    backend,
    "erff",
    mapElements((v) => v * ALPHA, x),
  );
}

function isTanh(call: Call): boolean {
  const approximate = call.get("approximate") ?? "none";
  if (approximate !== "none" && approximate !== "tanh")
    throw new NotModelled(`approximate is ${approximate}`);
  return approximate === "tanh";
}

/** x / 2 * (1 + t), where t is `tanhInner` or `erfInner`, by the argument `approximate` (ActivationGeluKernel.cu). */
export const gelu: Model = (call) => {
  const inner = isTanh(call) ? tanhInner : erfInner;
  return selfModel((backend, x) =>
    mapElements((v, t) => fround(v * 0.5) * fround(1 + t), x, inner(backend, x)),
  )(call);
};

/**
 * grad * fma(1 + t, 1/2, u) (ActivationGeluKernel.cu). With `approximate` "tanh", t is `tanhInner` and u is (x / 2 * fma(-t, t,
 * 1)) * (beta * fma(3 * kappa, x * x, 1)). Otherwise t is `erfInner` and u is x * (expf(-x / 2 * x) / sqrt(2 * pi)).
 */
export const geluBackward = gradientModel((backend, grad, x, call) => {
  if (isTanh(call)) {
    const factor = fround(3 * KAPPA);
    return mapElements(
      (g, v, t) => {
        const square = fround(v * v);
        const inner = fround(BETA * fma(factor, square, 1));
        const derivativeOfTanh = fround(fround(v * 0.5) * fma(-t, t, 1));
        return g * fma(fround(1 + t), 0.5, fround(derivativeOfTanh * inner));
      },
      grad,
      x,
      tanhInner(backend, x),
    );
  }
  const density = applyMath(
    backend,
    "expf",
    mapElements((v) => fround(v * -0.5) * v, x),
  );
  const beta = fround((2 / Math.sqrt(Math.PI)) * Math.SQRT1_2 * 0.5);
  const derivative = mapElements(
    (v, e, t) => fma(fround(1 + t), 0.5, fround(v * fround(e * beta))),
    x,
    density,
    erfInner(backend, x),
  );
  return mapElements((g, s) => g * s, grad, derivative);
});

/** x * min(max(x + 3, 0), 6) * (1/6) (ActivationHardswishKernel.cu). */
export const hardswish = selfModel((_, x) => mapElements((v) => fround(v * clampToSix(v)) * SIXTH, x));

/** min(max(x + 3, 0), 6) * (1/6) (ActivationHardsigmoidKernel.cu). */
export const hardsigmoid = selfModel((_, x) => mapElements((v) => clampToSix(v) * SIXTH, x));

const SIXTH = fround(1 / 6);

function clampToSix(x: number): number {
  return min(max(fround(x + 3), 0), 6);
}

/** x if it is positive, else x * negative_slope (ActivationLeakyReluKernel.cu). */
export const leakyRelu: Model = (call) => {
  const slope = fround(call.number("negative_slope", 0.01));
  return selfModel((_, x) => mapElements((v) => (v > 0 ? v : v * slope), x))(call);
};

/** The first half of `self` along a dimension, multiplied by the sigmoid of the second half (ActivationGluKernel.cu). */
export const glu: Model = (call) => {
  const x = call.tensor("self");
  const dim = call.dimension("dim", x.shape, -1);
  const size = x.shape[dim] as number;
  if (x.shape.length === 0 || size % 2 !== 0)
    throw new ShapeError(`glu: dimension ${dim} of [${x.shape}] is not even`);
  const half = (start: number) => narrow(x, dim, start, start + size / 2);
  return computeValue(call, [half(0), half(size / 2)], (a, b) =>
    mapElements((v, s) => v * s, a, logistic(call.backend, b as Float32Array)),
  );
};
