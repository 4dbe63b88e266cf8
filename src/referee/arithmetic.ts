/** Models of arithmetic operators: f32 arithmetic on each element, and one rounding to the dtype of the result. */
import type { FileDType } from "../io/dtypes.js";
import type { Call, Model } from "./call.js";
import { conversion, numberValue, requireFloat } from "./conversions.js";
import { withSigns } from "./elementwise.js";
import { fma } from "./float32.js";
import { NotModelled } from "./not-modelled.js";
import {
  computeInDoubles,
  computeValue,
  type Formula,
  mapElements,
  type Operation,
  unaryOperation,
} from "./pointwise.js";
import { broadcast, commonShape, type Value } from "./value.js";

const { abs, fround } = Math;

/**
 * Returns the operands of a binary operator and the dtype of its result. If the dtypes differ, a tensor without dimensions is
 * converted to the dtype of the other tensor; two tensors with dimensions have an f64 result if one of them is f64, else f32.
 */
function promoteOperands({ backend }: Call, a: Value, b: Value): readonly [Value, Value, FileDType] {
  for (const value of [a, b]) requireFloat(value);
  const [isNumber, isOtherNumber] = [a, b].map(({ shape }) => shape.length === 0);
  if (a.dtype === b.dtype) return [a, b, a.dtype];
  if (isNumber === isOtherNumber) return [a, b, a.dtype === "F64" || b.dtype === "F64" ? "F64" : "F32"];
  return isNumber
    ? [conversion(backend, a, b.dtype), b, b.dtype]
    : [a, conversion(backend, b, a.dtype), a.dtype];
}

/** The operands `self` and `other`, and the dtype of the result. A number does not change the dtype. */
function operands(call: Call): readonly [Value, Value, FileDType] {
  const x = call.tensor("self");
  const y = call.operand("other");
  return typeof y === "number" ? [x, numberValue(y, x.dtype), x.dtype] : promoteOperands(call, x, y);
}

/** The model of a formula of `self` and `other`. `other` may be a number. */
export function binaryModel(formula: Formula): Model {
  return (call) => {
    const [x, y, dtype] = operands(call);
    return computeValue(call, [x, y], (a, b) => mapElements(formula, a, b), { dtype });
  };
}

/** The model of an operation of `self` and `other`, in f64 if the result is f64. `other` may be a number. */
export function binaryOperation(operation: Operation): Model {
  return (call) => {
    const [x, y, dtype] = operands(call);
    return dtype === "F64" ? computeInDoubles(call, operation, x, y) : binaryModel(operation)(call);
  };
}

/** Returns `other`. A number is rounded to the dtype of `self`. */
function otherOperandInDType(call: Call, self: Value): Value {
  const operand = call.operand("other");
  return typeof operand === "number" ? conversion(call.backend, numberValue(operand), self.dtype) : operand;
}

/** As `binaryModel`, for kernels that round a number to the dtype of `self` first. */
export function binaryModelInDType(formula: Formula): Model {
  return (call) => {
    const x = call.tensor("self");
    return computeValue(call, [x, otherOperandInDType(call, x)], (a, b) => mapElements(formula, a, b));
  };
}

/**
 * The model of fma(y, sign * alpha, x), where alpha is rounded to f32 (BinaryInternal.h). x and y are `self` and `other`, or, if
 * `isReversed`, `other` and `self`. In f64, alpha must be 1.
 */
function scaledSum(sign: number, isReversed = false): Model {
  return (call) => {
    const alpha = sign * fround(call.number("alpha", 1));
    const add: Operation = isReversed ? (x, y) => fma(x, alpha, y) : (x, y) => fma(y, alpha, x);
    const [x, y, dtype] = operands(call);
    if (dtype !== "F64") return binaryModel(add)(call);
    call.requireDefault("alpha", 1);
    return computeInDoubles(call, isReversed ? (a, b) => b + alpha * a : (a, b) => a + alpha * b, x, y);
  };
}

export const add = scaledSum(1);
export const subtract = scaledSum(-1);
export const reverseSubtract = scaledSum(-1, true);

export const multiply = binaryOperation((x, y) => x * y);

/**
 * Division by a number multiplies by its reciprocal, which is computed in f64, and rounded to f32 unless `self` is f64
 * (BinaryDivTrueKernel.cu).
 */
export const divide: Model = (call) => {
  const divisor = call.operand("other");
  if (typeof divisor !== "number") return binaryOperation((x, y) => x / y)(call);
  const x = call.tensor("self");
  if (x.dtype === "F64") return computeInDoubles(call, (a) => a * (1 / divisor), x);
  const reciprocal = fround(1 / divisor);
  return computeValue(call, [x], (a) => mapElements((value) => value * reciprocal, a));
};

/**
 * `lerp` of Lerp.h: fma(weight, end - self, self) if |weight| < 1/2, else fma(self - end, 1 - weight, end). Each difference is
 * rounded to f32.
 */
export const lerpFormula: Formula = (start, end, weight) => {
  const difference = fround(end - start);
  return abs(weight) < 0.5 ? fma(weight, difference, start) : fma(-difference, fround(1 - weight), end);
};

/** Throws `NotModelled` unless all tensors have the dtype of the first. */
function requireOneDType([first, ...remaining]: readonly [Value, ...Value[]]): void {
  for (const tensor of remaining)
    if (tensor.dtype !== first.dtype) throw new NotModelled(`${first.dtype} with ${tensor.dtype}`);
}

export const lerp: Model = (call) => {
  const [x, end, weight] = [call.tensor("self"), call.tensor("end"), call.operand("weight")];
  const factor = typeof weight === "number" ? numberValue(weight) : weight;
  requireOneDType(typeof weight === "number" ? [x, end] : [x, end, weight]);
  return computeValue(call, [x, end, factor], (a, b, c) => mapElements(lerpFormula, a, b, c));
};

/**
 * self + value * (tensor1 op tensor2) of DeviceAddCmulCdiv.cuh: the product or quotient is rounded, then an fma adds it. If the
 * value is 1, a product and the addition are one fma.
 */
export function addcFormula(operation: "product" | "quotient", value: number): Formula {
  const factor = fround(value);
  if (operation === "quotient") return (x, a, b) => fma(factor, fround(a / b), x);
  if (factor === 1) return (x, a, b) => fma(a, b, x);
  return (x, a, b) => fma(factor, fround(a * b), x);
}

/** The model of addcmul or addcdiv (PointwiseOpsKernel.cu). */
export function addcmulOrAddcdiv(operation: "product" | "quotient"): Model {
  return (call) => {
    const tensors = [call.tensor("self"), call.tensor("tensor1"), call.tensor("tensor2")] as const;
    requireOneDType(tensors);
    const formula = addcFormula(operation, call.number("value", 1));
    return computeValue(call, tensors, (x, a, b) => mapElements(formula, x, a, b));
  };
}

/** The bounds are numbers, rounded to f32 unless `self` is f64; the result is rounded to the dtype. A NaN stays NaN. */
export const clamp: Model = (call) => {
  const round = call.tensor("self").dtype === "F64" ? Number : fround;
  const [lower, upper] = ["min", "max"].map((name) =>
    call.get(name) === undefined ? undefined : round(call.number(name)),
  );
  return unaryOperation((x) => {
    const withLowerBound = lower === undefined ? x : Math.max(x, lower);
    return upper === undefined ? withLowerBound : Math.min(withLowerBound, upper);
  })(call);
};

/** The bits of `self` with the sign of `other`. */
export const copySign: Model = (call) => {
  const x = call.tensor("self");
  const y = otherOperandInDType(call, x);
  requireOneDType([x, y]);
  const shape = commonShape(x.shape, y.shape);
  const signs = broadcast(y, shape).bytes;
  return [withSigns(broadcast(x, shape), (byte, i) => (byte & 0x7f) | ((signs[i] as number) & 0x80))];
};

/** The remainder with the sign of the divisor: fmod, plus the divisor if the signs differ (BinaryRemainderKernel.cu). */
export const floorRemainder: Formula = (x, y) => {
  const remainder = x % y;
  return remainder !== 0 && y < 0 !== remainder < 0 ? remainder + y : remainder;
};

/** A minimum or maximum that returns the other argument if one argument is NaN. */
export function withoutNaN(choose: Operation): Operation {
  return (x, y) => (Number.isNaN(x) ? y : Number.isNaN(y) ? x : choose(x, y));
}

export function sign(x: number): number {
  if (x > 0) return 1;
  return x < 0 ? -1 : 0;
}

/** Rounds a number to the nearest integer, ties to even. A result of zero has the sign of x. */
export function roundToInteger(x: number): number {
  if (!(abs(x) < 2 ** 52)) return x;
  const magnitude = abs(x) + 2 ** 52 - 2 ** 52;
  return x < 0 || Object.is(x, -0) ? -magnitude : magnitude;
}
