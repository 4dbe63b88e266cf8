/** Models of powers (Pow.cpp, PowKernel.cu). */
import type { Backend } from "../backends/backend.js";
import { tensor } from "../ops/create.js";
import { specialFunction } from "../ops/elementwise/special-function.js";
import { Scope } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import type { Model } from "./call.js";
import { roundNumber, roundThrough } from "./conversions.js";
import { applyMath } from "./float32.js";
import { computeValue, mapElements } from "./pointwise.js";

/** `powf` of each pair of numbers, as nvcc 13.0 compiles it without fast math. */
export function powf(backend: Backend, base: Float32Array, exponent: Float32Array): Float32Array {
  using _ = new Scope();
  const [x, y] = [base, exponent].map((values) => tensor(backend, values, [values.length])) as [
    Tensor,
    Tensor,
  ];
  return specialFunction(x, { function: "powf", y }).dataSync() as Float32Array;
}

/**
 * `powf`, except for some exponents: 0 gives 1, 1 copies x, 0.5 is sqrtf, -0.5 is rsqrtf, and -1 is 1 / x. 2, 3 and -2 are x * x,
 * x * x * x and 1 / (x * x), where each product is rounded to the dtype. Other exponents are rounded to the dtype first.
 */
export const power: Model = (call) => {
  const x = call.tensor("self");
  const { backend } = call;
  const exponent = call.number("exponent");
  const roundToDType = (values: Float32Array) => roundThrough(backend, x.dtype, values);
  const square = (a: Float32Array) => roundToDType(mapElements((v) => v * v, a));
  return computeValue(call, [x], (a) => {
    switch (exponent) {
      case 0:
        return mapElements(() => 1, a);
      case 1:
        return a;
      case 2:
        return square(a);
      case 3:
        return mapElements((v, w) => v * w, square(a), a);
      case 0.5:
        return applyMath(backend, "sqrtf", a);
      case -0.5:
        return applyMath(backend, "rsqrtf", a);
      case -1:
        return mapElements((v) => 1 / v, a);
      case -2:
        return mapElements((v) => 1 / v, square(a));
      default: {
        const e = roundNumber(backend, exponent, x.dtype);
        return powf(
          backend,
          a,
          mapElements(() => e, a),
        );
      }
    }
  });
};

/** `powf` with a number as the base. The base is rounded to the dtype of the exponents. */
export const powerOfNumber: Model = (call) => {
  const exponent = call.tensor("exponent");
  const base = roundNumber(call.backend, call.number("self"), exponent.dtype);
  return computeValue(call, [exponent], (e) =>
    powf(
      call.backend,
      mapElements(() => base, e),
      e,
    ),
  );
};

/** `powf` of tensors of one dtype. */
export const powerOfTensors: Model = (call) =>
  computeValue(call, [call.tensor("self"), call.tensor("exponent")], (x, e) =>
    powf(call.backend, x, e as Float32Array),
  );
