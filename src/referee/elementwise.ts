/** Models of elementwise operators: f32 arithmetic on each element, and one rounding to the dtype of the result. */
import type { Backend } from "../backends/backend.js";
import type { SpecialFunctionName } from "../formats/special-functions.js";
import { type FileDType, tensorDType } from "../io/dtypes.js";
import { decode, encode } from "../ops/cast/cast.js";
import { tensor } from "../ops/create.js";
import { add, divide, multiply, scaled } from "../ops/elementwise/operators.gen.js";
import { specialFunction } from "../ops/elementwise/special-function.js";
import { asBytes } from "../tensor/data.js";
import { Scope } from "../tensor/scope.js";
import { type DType, isWide, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { Call } from "./call.js";
import type { Model } from "./moves.js";
import { NotModelled } from "./not-modelled.js";
import { chosen, integersOf } from "./selections.js";
import { broadcast, commonShape, toTensor, toValue, type Value } from "./value.js";

/** The wide dtype of a value. Throws `NotModelled` for any other. */
export function wideOf({ dtype }: Value): WideDType {
  const type = tensorDType(dtype);
  if (type !== undefined && isWide(type)) return type;
  throw new NotModelled(`${dtype} operands`);
}

/** The dtype of a result of two tensors. Where a tensor without dimensions would be rounded first, there is no model. */
function commonDType(a: Value, b: Value): WideDType {
  const [x, y] = [wideOf(a), wideOf(b)];
  if (x === y) return x;
  if ((a.shape.length === 0) !== (b.shape.length === 0))
    throw new NotModelled(`${a.dtype} [${a.shape}] with ${b.dtype} [${b.shape}]`);
  return "f32";
}

/** A number as a tensor without dimensions, rounded to f32. */
function numberValue(x: number): Value {
  return { dtype: "F32", shape: [], bytes: new Uint8Array(Float32Array.of(x).buffer) };
}

type Formula = (x: Tensor, y: Tensor, outDtype: WideDType) => Tensor;

/** Computes a formula of two operands that are broadcast. */
function ofTwo(call: Call, a: Value, b: Value, outDtype: WideDType, formula: Formula): readonly Value[] {
  const shape = commonShape(a.shape, b.shape);
  using _ = new Scope();
  const [x, y] = [a, b].map((each) => toTensor(call.backend, broadcast(each, shape))) as [Tensor, Tensor];
  return [toValue(formula(x, y, outDtype))];
}

/** The operands `self` and `other`, and the dtype of the result. A number does not change the dtype. */
function operands(call: Call): readonly [Value, Value, WideDType] {
  const x = call.tensor("self");
  const y = call.operand("other");
  return typeof y === "number" ? [x, numberValue(y), wideOf(x)] : [x, y, commonDType(x, y)];
}

const sum: Formula = (x, y, outDtype) => add(x, y, { outDtype });
const product: Formula = (x, y, outDtype) => multiply(x, y, { outDtype });
const quotient: Formula = (x, y, outDtype) => divide(x, y, { outDtype });

export const added: Model = (call) => {
  call.requireDefault("alpha", 1);
  return ofTwo(call, ...operands(call), sum);
};

export const subtracted: Model = (call) => {
  call.requireDefault("alpha", 1);
  const [x, y, dtype] = operands(call);
  return ofTwo(
    call,
    x,
    withSigns(y, (sign) => sign ^ 0x80),
    dtype,
    sum,
  );
};

export const multiplied: Model = (call) => ofTwo(call, ...operands(call), product);

/** PyTorch multiplies by the reciprocal, rounded to f32, if the divisor is a number. */
export const divided: Model = (call) => {
  const divisor = call.operand("other");
  if (typeof divisor !== "number") return ofTwo(call, ...operands(call), quotient);
  const x = call.tensor("self");
  const reciprocal = Math.fround(1 / Math.fround(divisor));
  return ofTwo(call, x, numberValue(reciprocal), wideOf(x), product);
};

/** Replaces the byte with the sign of each element. */
function withSigns(x: Value, change: (byte: number) => number): Value {
  const size = wideOf(x) === "f32" ? 4 : 2;
  const bytes = x.bytes.slice();
  for (let i = size - 1; i < bytes.length; i += size) bytes[i] = change(bytes[i] as number);
  return { ...x, bytes };
}

export const negated: Model = (call) => [withSigns(call.tensor("self"), (byte) => byte ^ 0x80)];
export const absolute: Model = (call) => [withSigns(call.tensor("self"), (byte) => byte & 0x7f)];

/** The f32 values of a tensor, which are exact for bf16 and f16. */
function valuesOf(call: Call, x: Value): Float32Array {
  wideOf(x);
  using _ = new Scope();
  const wide = scaled(toTensor(call.backend, x), 1, { outDtype: "f32" });
  return wide.dataSync() as Float32Array;
}

/** For each element, whether a condition on its f32 value holds. */
function condition(call: Call, x: Value, holds: (value: number) => boolean): Value {
  return {
    dtype: "BOOL",
    shape: x.shape,
    bytes: Uint8Array.from(valuesOf(call, x), (each) => Number(holds(each))),
  };
}

/** Positive zeros of the dtype of `x`, without dimensions. */
function zeroLike({ dtype }: Value): Value {
  return { dtype, shape: [], bytes: new Uint8Array(dtype === "F32" ? 4 : 2) };
}

/** NaN passes; a zero of either sign becomes +0. */
export const relu: Model = (call) => {
  const x = call.tensor("self");
  return [
    chosen(
      condition(call, x, (value) => value <= 0),
      zeroLike(x),
      x,
    ),
  ];
};

export const thresholdBackward: Model = (call) => {
  const [grad, x] = [call.tensor("grad_output"), call.tensor("self")];
  const threshold = Math.fround(call.number("threshold"));
  wideOf(grad);
  return [
    chosen(
      condition(call, x, (value) => value <= threshold),
      zeroLike(grad),
      grad,
    ),
  ];
};

export const masked: Model = (call) => {
  const x = call.tensor("self");
  const dtype = wideOf(x);
  const value = call.operand("value");
  if (typeof value !== "number") throw new NotModelled("a value that is a tensor");
  using _ = new Scope();
  const fill = toValue(scaled(toTensor(call.backend, numberValue(value)), 1, { outDtype: dtype }));
  return [chosen(call.tensor("mask"), fill, x)];
};

/** A comparison with a number, or with a tensor of the same dtype. */
export function compared(holds: (x: number, y: number) => boolean): Model {
  return (call) => {
    const [x, y] = [call.tensor("self"), call.operand("other")];
    if (typeof y === "number") {
      // PyTorch compares in the dtype of the tensor
      if (wideOf(x) !== "f32" && Math.fround(y) !== 0) throw new NotModelled(`${x.dtype} compared with ${y}`);
      return [condition(call, x, (value) => holds(value, Math.fround(y)))];
    }
    if (wideOf(x) !== wideOf(y)) throw new NotModelled(`${x.dtype} compared with ${y.dtype}`);
    const shape = commonShape(x.shape, y.shape);
    const other = valuesOf(call, broadcast(y, shape));
    const bytes = Uint8Array.from(valuesOf(call, broadcast(x, shape)), (each, i) =>
      Number(holds(each, other[i] as number)),
    );
    return [{ dtype: "BOOL", shape, bytes }];
  };
}

/** Computes `formula` of the f32 values of `self`, then rounds once to its dtype. */
function inF32(formula: (x: Tensor, outDtype: WideDType) => Tensor): Model {
  return (call) => {
    const x = call.tensor("self");
    const dtype = wideOf(x);
    using _ = new Scope();
    return [toValue(formula(scaled(toTensor(call.backend, x), 1, { outDtype: "f32" }), dtype))];
  };
}

/** A math function of CUDA, as nvcc 13.0 compiles it without fast math. */
export function mathFunction(name: SpecialFunctionName): Model {
  return inF32((x, outDtype) => scaled(specialFunction(x, { function: name }), 1, { outDtype }));
}

/** 1 + e^-x, in f32: the exponential and the sum are rounded. */
function onePlusExp(x: Tensor): Tensor {
  const power = specialFunction(scaled(x, -1, { outDtype: "f32" }), { function: "expf" });
  return add(power, ones(power), { outDtype: "f32" });
}

function ones({ backend, size, shape }: Tensor): Tensor {
  return tensor(backend, new Float32Array(size).fill(1), shape);
}

export const reciprocal: Model = inF32((x, outDtype) => divide(ones(x), x, { outDtype }));
export const silu: Model = inF32((x, outDtype) => divide(x, onePlusExp(x), { outDtype }));
export const sigmoid: Model = inF32((x, outDtype) => divide(ones(x), onePlusExp(x), { outDtype }));

/** The exponents 0 to 2, and 3 in f32, for which PyTorch takes ones, a copy and products; others have no model. */
export const power: Model = (call) => {
  const exponent = call.number("exponent");
  if (exponent === 0) return filled(likeSelf)(call);
  if (exponent === 1) return [call.tensor("self")];
  if (exponent !== 2 && exponent !== 3) throw new NotModelled(`the exponent ${exponent}`);
  if (exponent === 3 && call.tensor("self").dtype !== "F32")
    throw new NotModelled("the exponent 3 in 16 bits");
  return inF32((x, outDtype) => {
    const square = multiply(x, x, { outDtype });
    return exponent === 2 ? square : multiply(square, x, { outDtype });
  })(call);
};

/** Ones, or a number rounded to f32 and then to the dtype. */
export function filled(
  shapeOf: (call: Call) => readonly [readonly number[], FileDType],
  name?: string,
): Model {
  return (call) => {
    const [shape, dtype] = shapeOf(call);
    if (dtype === "BOOL" && name === undefined)
      return [broadcast({ dtype, shape: [], bytes: Uint8Array.of(1) }, shape)];
    const element = numberValue(name === undefined ? 1 : call.number(name));
    const type = wideOf({ ...element, dtype });
    using _ = new Scope();
    const rounded = toValue(scaled(toTensor(call.backend, element), 1, { outDtype: type }));
    return [broadcast(rounded, shape)];
  };
}

/** The shape and dtype of `self`, unless a dtype is given. */
export const likeSelf = (call: Call): readonly [readonly number[], FileDType] => {
  const { shape, dtype } = call.tensor("self");
  return [shape, call.dtype("dtype") ?? dtype];
};

/** The shape `size`, and the dtype, by default f32. */
export const bySize = (call: Call): readonly [readonly number[], FileDType] => [
  call.integers("size"),
  call.dtype("dtype") ?? "F32",
];

const INTEGERS: readonly FileDType[] = ["BOOL", "U8", "I32", "I64"];

/** Integers as f32, rounded to nearest even. Throws `NotModelled` beyond 2^53, where a number of JavaScript is rounded too. */
function fromIntegers(x: Value): Value {
  const integers = integersOf(x);
  if (!integers.every(Number.isSafeInteger)) throw new NotModelled("integers beyond 2^53");
  return { dtype: "F32", shape: x.shape, bytes: asBytes(Float32Array.from(integers)) };
}

const CONVERTED: readonly (DType | undefined)[] = ["f32", "bf16", "f16", "e4m3", "e5m2"];

/** Converts among f32, bf16, f16, e4m3 and e5m2, by way of f32: rounded once to nearest even, overflow to infinity or NaN. */
function conversion(backend: Backend, x: Value, to: FileDType): Value {
  if (to === x.dtype) return x;
  if (INTEGERS.includes(x.dtype)) return conversion(backend, fromIntegers(x), to);
  const [from, type] = [tensorDType(x.dtype), tensorDType(to)];
  if (from === undefined || type === undefined || !CONVERTED.includes(from) || !CONVERTED.includes(type))
    throw new NotModelled(`a conversion from ${x.dtype} to ${to}`);
  using _ = new Scope();
  const source = toTensor(backend, x);
  const wide = isWide(from) ? source : decode(source);
  if (isWide(type)) return toValue(scaled(wide, 1, { outDtype: type }));
  return toValue(encode(wide, { format: type, overflow: "nonfinite" }));
}

export const converted: Model = (call) => {
  const x = call.tensor("self");
  return [conversion(call.backend, x, call.dtype("dtype") ?? x.dtype)];
};

/** The elements of `src` in the shape and dtype of `self`. */
export const copiedInto: Model = (call) => {
  const [x, source] = [call.tensor("self"), call.tensor("src")];
  return [conversion(call.backend, broadcast(source, x.shape), x.dtype)];
};
