/** Elementwise formulas in f32, computed with JavaScript numbers. A formula rounds each step by `Math.fround` or `fma`. */
import type { SpecialFunctionName } from "../formats/special-functions.js";
import { asBytes } from "../tensor/data.js";
import type { Call, Model } from "./call.js";
import { roundedValue, toFloat32, toFloat64 } from "./conversions.js";
import { applyMath } from "./float32.js";
import { broadcast, commonShape, type Value } from "./value.js";

/** A function of up to three f32 numbers. The caller rounds its result to f32. */
export type Formula = (a: number, b: number, c: number) => number;

/**
 * A function of one or two numbers that is one operation of IEEE 754, or exact. JavaScript computes it in f64, so it needs no
 * rounding for f64 operands and one for f32 operands.
 */
export type Operation = (a: number, b: number) => number;

/** Applies a formula to the elements of arrays of one length. `b` and `c` default to `a`. */
export function mapElements(formula: Formula, a: Float32Array, b = a, c = a): Float32Array {
  const out = new Float32Array(a.length);
  for (let i = 0; i < out.length; i++) out[i] = formula(a[i] as number, b[i] as number, c[i] as number);
  return out;
}

/**
 * Computes a tensor: broadcasts the inputs to one shape, passes their f32 values to `compute`, and rounds the result once to a
 * dtype, by default the dtype of the first input.
 */
export function computeValue(
  { backend }: Call,
  values: readonly [Value, ...Value[]],
  compute: (...floats: readonly [Float32Array, ...Float32Array[]]) => Float32Array,
  { dtype }: Pick<Value, "dtype"> = values[0],
): readonly Value[] {
  const shape = commonShape(...values.map((value) => value.shape));
  const [first, ...operands] = values.map((value) => toFloat32(backend, broadcast(value, shape)));
  return [roundedValue(backend, dtype, shape, compute(first as Float32Array, ...operands))];
}

/** The model of a formula of `self` in f32. */
export function unaryModel(formula: (x: number) => number): Model {
  return (call) => computeValue(call, [call.tensor("self")], (a) => mapElements(formula, a));
}

/**
 * Computes an f64 tensor: broadcasts the inputs to one shape and applies an operation to their f64 values. `b` defaults to `a`.
 */
export function computeInDoubles({ backend }: Call, operation: Operation, a: Value, b = a): readonly Value[] {
  const shape = commonShape(a.shape, b.shape);
  const x = toFloat64(backend, broadcast(a, shape));
  const y = b === a ? x : toFloat64(backend, broadcast(b, shape));
  return [{ dtype: "F64", shape, bytes: asBytes(x.map((value, i) => operation(value, y[i] as number))) }];
}

/** The model of an operation of `self`, in f64 for an f64 tensor. */
export function unaryOperation(operation: (x: number) => number): Model {
  return (call) => {
    const x = call.tensor("self");
    return x.dtype === "F64" ? computeInDoubles(call, operation, x) : unaryModel(operation)(call);
  };
}

/** The model of a math function of CUDA, as nvcc 13.0 compiles it without fast math. */
export function mathModel(name: SpecialFunctionName): Model {
  return (call) => computeValue(call, [call.tensor("self")], (x) => applyMath(call.backend, name, x));
}
