import { ShapeError } from "../errors.js";
import type { FileDType } from "../io/dtypes.js";
import { scaled } from "../ops/elementwise/operators.gen.js";
import { Scope } from "../tensor/scope.js";
import type { Call, Model } from "./call.js";
import {
  conversion,
  numberValue,
  requireFloat,
  requireWideDType,
  roundNumber,
  toNumbers,
} from "./conversions.js";
import { NotModelled } from "./not-modelled.js";
import { selectWhere } from "./selections.js";
import { broadcast, commonShape, itemSize, toTensor, toValue, type Value, zeroValue } from "./value.js";

/** Replaces the byte that contains the sign in each element. `i` is the index of the byte. */
export function withSigns(x: Value, change: (byte: number, i: number) => number): Value {
  requireFloat(x);
  const size = itemSize(x.dtype);
  const bytes = x.bytes.slice();
  for (let i = size - 1; i < bytes.length; i += size) bytes[i] = change(bytes[i] as number, i);
  return { ...x, bytes };
}

export const negate: Model = (call) => [withSigns(call.tensor("self"), (byte) => byte ^ 0x80)];
export const absolute: Model = (call) => [withSigns(call.tensor("self"), (byte) => byte & 0x7f)];

/** A BOOL tensor with the value of a predicate for each element. */
function condition(call: Call, x: Value, predicate: (value: number) => boolean): Value {
  return {
    dtype: "BOOL",
    shape: x.shape,
    bytes: Uint8Array.from(toNumbers(call.backend, x), (each) => Number(predicate(each))),
  };
}

/** Returns +0 in the dtype of `x`, as a tensor without dimensions. */
function zeroLike({ dtype }: Value): Value {
  return { dtype, shape: [], bytes: new Uint8Array(itemSize(dtype)) };
}

/** +0 where x is at most 0, so that a zero of either sign becomes +0; a NaN stays. */
export const relu: Model = (call) => {
  const x = call.tensor("self");
  return [
    selectWhere(
      condition(call, x, (value) => value <= 0),
      zeroLike(x),
      x,
    ),
  ];
};

export const thresholdBackward: Model = (call) => {
  const [grad, x] = [call.tensor("grad_output"), call.tensor("self")];
  const threshold = Math.fround(call.number("threshold"));
  requireWideDType(grad);
  return [
    selectWhere(
      condition(call, x, (value) => value <= threshold),
      zeroLike(grad),
      grad,
    ),
  ];
};

export const maskedFill: Model = (call) => {
  const x = call.tensor("self");
  const dtype = requireWideDType(x);
  const value = call.operand("value");
  if (typeof value !== "number") throw new NotModelled("a value that is a tensor");
  using _ = new Scope();
  const fill = toValue(scaled(toTensor(call.backend, numberValue(value)), 1, { outDtype: dtype }));
  return [selectWhere(call.tensor("mask"), fill, x)];
};

/** The model that tests a condition on each element of `self`. */
export function conditionModel(predicate: (value: number) => boolean): Model {
  return (call) => [condition(call, call.tensor("self"), predicate)];
}

/** The model of a comparison of `self` with a number, which is rounded to the dtype, or with a tensor of the same dtype. */
export function comparisonModel(predicate: (x: number, y: number) => boolean): Model {
  return (call) => {
    const [x, y] = [call.tensor("self"), call.operand("other")];
    if (typeof y === "number") {
      const number = roundNumber(call.backend, y, x.dtype);
      return [condition(call, x, (value) => predicate(value, number))];
    }
    if (x.dtype !== y.dtype) throw new NotModelled(`${x.dtype} compared with ${y.dtype}`);
    const shape = commonShape(x.shape, y.shape);
    const operand = toNumbers(call.backend, broadcast(y, shape));
    const bytes = Uint8Array.from(toNumbers(call.backend, broadcast(x, shape)), (each, i) =>
      Number(predicate(each, operand[i] as number)),
    );
    return [{ dtype: "BOOL", shape, bytes }];
  };
}

/** The model that fills a tensor with ones, or with the number of argument `name`, rounded to f32 and then to the dtype. */
export function fillModel(
  resultForm: (call: Call) => readonly [readonly number[], FileDType],
  name?: string,
): Model {
  return (call) => {
    const [shape, dtype] = resultForm(call);
    if (dtype === "BOOL" && name === undefined)
      return [broadcast({ dtype, shape: [], bytes: Uint8Array.of(1) }, shape)];
    const element = numberValue(name === undefined ? 1 : call.number(name), dtype);
    if (dtype === "F64") return [broadcast(element, shape)];
    const type = requireWideDType({ ...element, dtype });
    using _ = new Scope();
    const roundedElement = toValue(scaled(toTensor(call.backend, element), 1, { outDtype: type }));
    return [broadcast(roundedElement, shape)];
  };
}

/** The shape and dtype of the result: the shape of `self`, and the argument `dtype`, by default the dtype of `self`. */
export const shapeFromSelf = (call: Call): readonly [readonly number[], FileDType] => {
  const { shape, dtype } = call.tensor("self");
  return [shape, call.dtype("dtype") ?? dtype];
};

export const toDType: Model = (call) => {
  const x = call.tensor("self");
  return [conversion(call.backend, x, call.dtype("dtype") ?? x.dtype)];
};

/** aten::copy_: `src`, broadcast to the shape of `self` and converted to its dtype. */
export const copyInto: Model = (call) => {
  const [x, source] = [call.tensor("self"), call.tensor("src")];
  return [conversion(call.backend, broadcast(source, x.shape), x.dtype)];
};

/**
 * start + i * step. The default dtype is i64. Throws `NotModelled` unless start, step and each element are integers that are
 * exact in the dtype. For bf16 and f16 they must be exact in f32; the elements are then rounded to the dtype.
 */
export const range: Model = (call) => {
  const [start, end, step] = [call.number("start", 0), call.number("end"), call.number("step", 1)];
  const dtype = call.dtype("dtype") ?? "I64";
  const count = Math.ceil((end - start) / step);
  if (!(count >= 0)) throw new ShapeError(`a range from ${start} to ${end} in steps of ${step}`);
  const lastElement = start + Math.max(count - 1, 0) * step;
  const limit = dtype === "I64" ? Number.MAX_SAFE_INTEGER : dtype === "I32" ? 2 ** 31 - 1 : 2 ** 24;
  const isExact = [start, step, lastElement].every(
    (each) => Number.isInteger(each) && Math.abs(each) <= limit,
  );
  if (!isExact) throw new NotModelled(`a range of ${dtype} from ${start} to ${end} in steps of ${step}`);
  const out = zeroValue("I64", [count]);
  const elements = new BigInt64Array(out.bytes.buffer);
  for (let i = 0; i < count; i++) elements[i] = BigInt(start + i * step);
  return [dtype === "I64" ? out : conversion(call.backend, out, dtype)];
};
