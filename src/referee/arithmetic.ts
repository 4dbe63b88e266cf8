/** Models of arithmetic operators: f32 arithmetic on each element, and one rounding to the dtype of the result. */
import type { FileDType } from "../io/dtypes.js";
import type { Call, Model } from "./call.js";
import { conversion, numberValue, requireWideDType } from "./conversions.js";
import { withSigns } from "./elementwise.js";
import { fma } from "./float32.js";
import { NotModelled } from "./not-modelled.js";
import { computeValue, type Formula, mapElements } from "./pointwise.js";
import { broadcast, commonShape, type Value } from "./value.js";

const { abs, fround } = Math;

/**
 * Returns the operands of a binary operator and the dtype of its result. If the dtypes differ, a tensor without dimensions is
 * converted to the dtype of the other tensor; two tensors with dimensions have an f32 result.
 */
function promoteOperands({ backend }: Call, a: Value, b: Value): readonly [Value, Value, FileDType] {
  for (const value of [a, b]) requireWideDType(value);
  const [isNumber, isOtherNumber] = [a, b].map(({ shape }) => shape.length === 0);
  if (a.dtype === b.dtype) return [a, b, a.dtype];
  if (isNumber === isOtherNumber) return [a, b, "F32"];
  return isNumber
    ? [conversion(backend, a, b.dtype), b, b.dtype]
    : [a, conversion(backend, b, a.dtype), a.dtype];
}

/** The operands `self` and `other`, and the dtype of the result. A number does not change the dtype. */
function operands(call: Call): readonly [Value, Value, FileDType] {
  const x = call.tensor("self");
  const y = call.operand("other");
  return typeof y === "number" ? [x, numberValue(y), x.dtype] : promoteOperands(call, x, y);
}

/** The model of a formula of `self` and `other`. `other` may be a number. */
export function binaryModel(formula: Formula): Model {
  return (call) => {
    const [x, y, dtype] = operands(call);
    return computeValue(call, [x, y], (a, b) => mapElements(formula, a, b), { dtype });
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
 * fma(other, sign * alpha, self), where alpha is rounded to f32 (BinaryInternal.h).
 */
function scaledSum(sign: number): Model {
  return (call) => {
    const alpha = sign * fround(call.number("alpha", 1));
    return binaryModel((x, y) => fma(y, alpha, x))(call);
  };
}

export const add = scaledSum(1);
export const subtract = scaledSum(-1);

/** fma(self, -alpha, other): a subtraction with exchanged operands. */
export const reverseSubtract: Model = (call) => {
  const alpha = -fround(call.number("alpha", 1));
  return binaryModel((x, y) => fma(x, alpha, y))(call);
};

export const multiply = binaryModel((x, y) => x * y);

/** Division by a number multiplies by its reciprocal, which is computed in f64 and rounded to f32 (BinaryDivTrueKernel.cu). */
export const divide: Model = (call) => {
  const divisor = call.operand("other");
  if (typeof divisor !== "number") return binaryModel((x, y) => x / y)(call);
  const reciprocal = fround(1 / divisor);
  return computeValue(call, [call.tensor("self")], (a) => mapElements((x) => x * reciprocal, a));
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

/** The bounds are numbers, which are rounded to f32; the result is rounded to the dtype. A NaN stays NaN. */
export const clamp: Model = (call) => {
  const [lower, upper] = ["min", "max"].map((name) =>
    call.get(name) === undefined ? undefined : fround(call.number(name)),
  );
  return computeValue(call, [call.tensor("self")], (a) =>
    mapElements((x) => {
      const withLowerBound = lower === undefined ? x : Math.max(x, lower);
      return upper === undefined ? withLowerBound : Math.min(withLowerBound, upper);
    }, a),
  );
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
export function withoutNaN(choose: (x: number, y: number) => number): Formula {
  return (x, y) => (Number.isNaN(x) ? y : Number.isNaN(y) ? x : choose(x, y));
}

export function sign(x: number): number {
  if (x > 0) return 1;
  return x < 0 ? -1 : 0;
}

/** Rounds an f32 number to the nearest integer, ties to even. A result of zero has the sign of x. */
export function roundToInteger(x: number): number {
  if (!(abs(x) < 2 ** 23)) return x;
  const magnitude = abs(x) + 2 ** 52 - 2 ** 52;
  return x < 0 || Object.is(x, -0) ? -magnitude : magnitude;
}
