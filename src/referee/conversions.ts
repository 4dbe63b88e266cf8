/** Conversions of tensors between dtypes, and to and from f32 numbers. All models use them. */
import type { Backend } from "../backends/backend.js";
import { type FileDType, tensorDType } from "../io/dtypes.js";
import { decode, encode } from "../ops/cast/cast.js";
import { scaled } from "../ops/elementwise/operators.gen.js";
import { alignBytes, asBytes } from "../tensor/data.js";
import { Scope } from "../tensor/scope.js";
import { type DType, isWide, type Shape, type WideDType } from "../tensor/shape.js";
import { NotModelled } from "./not-modelled.js";
import { toIntegers } from "./selections.js";
import { toTensor, toValue, type Value } from "./value.js";

/** The dtype of an f32, bf16 or f16 value. Throws `NotModelled` for another dtype. */
export function requireWideDType({ dtype }: Value): WideDType {
  const type = tensorDType(dtype);
  if (type !== undefined && isWide(type)) return type;
  throw new NotModelled(`${dtype} operands`);
}

/** Throws `NotModelled` for a value that is not f64, f32, bf16 or f16. */
export function requireFloat(x: Value): void {
  if (x.dtype !== "F64") requireWideDType(x);
}

/** The f32 values of an f32, bf16 or f16 tensor, in row-major order. Throws `NotModelled` for another dtype. */
export function toFloat32(backend: Backend, x: Value): Float32Array {
  requireWideDType(x);
  const { bytes } = conversion(backend, x, "F32");
  const { buffer, byteOffset, length } = alignBytes(bytes, 4);
  return new Float32Array(buffer, byteOffset, length / 4);
}

/** The f64 values of an f64, f32, bf16 or f16 tensor, in row-major order. Throws `NotModelled` for another dtype. */
export function toFloat64(backend: Backend, x: Value): Float64Array {
  requireFloat(x);
  const { bytes } = conversion(backend, x, "F64");
  const { buffer, byteOffset, length } = alignBytes(bytes, 8);
  return new Float64Array(buffer, byteOffset, length / 8);
}

/** Whether a tensor has zeros of both signs. */
export function hasBothZeros(backend: Backend, x: Value): boolean {
  const zeros = toNumbers(backend, x).filter((value) => value === 0);
  return [0, -0].every((zero) => zeros.some((value) => Object.is(value, zero)));
}

/** The values of an f64, f32, bf16 or f16 tensor. Throws `NotModelled` for another dtype. */
export function toNumbers(backend: Backend, x: Value): Float32Array | Float64Array {
  return x.dtype === "F64" ? toFloat64(backend, x) : toFloat32(backend, x);
}

/** A tensor of f32 numbers, each rounded once to the dtype, to nearest even. */
export function roundedValue(backend: Backend, dtype: FileDType, shape: Shape, values: Float32Array): Value {
  return conversion(backend, { dtype: "F32", shape, bytes: asBytes(values) }, dtype);
}

/** Rounds f32 numbers once to a dtype, and returns the results as f32 numbers. */
export function roundThrough(backend: Backend, dtype: FileDType, values: Float32Array): Float32Array {
  return toFloat32(backend, roundedValue(backend, dtype, [values.length], values));
}

/** A number as a tensor without dimensions: f64 where it meets an f64 tensor, else rounded to f32. */
export function numberValue(x: number, dtype?: FileDType): Value {
  const isDouble = dtype === "F64";
  const element = isDouble ? Float64Array.of(x) : Float32Array.of(x);
  return { dtype: isDouble ? "F64" : "F32", shape: [], bytes: asBytes(element) };
}

/** A number rounded to a dtype. */
export function roundNumber(backend: Backend, x: number, dtype: FileDType): number {
  if (dtype === "F64") return x;
  return toFloat32(backend, conversion(backend, numberValue(x), dtype))[0] as number;
}

/** The dtypes of integers that can be converted. */
const INTEGER_DTYPES: readonly FileDType[] = ["BOOL", "U8", "I32", "I64"];

/**
 * Converts integers to f32, rounded once to nearest even. Throws `NotModelled` for integers beyond 2^53, because JavaScript
 * numbers have rounded them already.
 */
function fromIntegers(x: Value): Value {
  const integers = toIntegers(x);
  if (!integers.every(Number.isSafeInteger)) throw new NotModelled("integers beyond 2^53");
  return { dtype: "F32", shape: x.shape, bytes: asBytes(Float32Array.from(integers)) };
}

/** The dtypes among which `conversion` converts by way of f32. */
const CONVERTIBLE_DTYPES: readonly (DType | undefined)[] = ["f32", "bf16", "f16", "e4m3", "e5m2"];

/**
 * The E8M0 code of an f32 value: its exponent field, plus one if the fraction is above 1/2, or equals 1/2 and the value is
 * normal.
 */
function toE8m0(x: number): number {
  const bits = new Uint32Array(Float32Array.of(x).buffer)[0] as number;
  const exponent = (bits >>> 23) & 0xff;
  if (exponent === 0xff) return exponent;
  const fraction = bits & 0x7fffff;
  return exponent + Number(fraction > 0x400000 || (fraction === 0x400000 && exponent > 0));
}

/** Converts f32, bf16 or f16 to E8M0, which has no sign. Infinity and NaN become NaN. */
function toScales(backend: Backend, x: Value): Value {
  return { dtype: "F8_E8M0", shape: x.shape, bytes: Uint8Array.from(toFloat32(backend, x), toE8m0) };
}

/** Converts E8M0 to f32: powers of two, and NaN for the code 255. */
function fromScales({ shape, bytes }: Value): Value {
  const powers = Float32Array.from(bytes, (code) => (code === 0xff ? Number.NaN : 2 ** (code - 127)));
  return { dtype: "F32", shape, bytes: asBytes(powers) };
}

/** Converts f32, bf16 or f16 to f64, exactly. An f16 NaN becomes the f64 value of the f32 NaN 7FFFFFFF. */
function toF64(backend: Backend, x: Value): Value {
  const floats = toFloat32(backend, x);
  const doubles = Float64Array.from(floats);
  if (x.dtype === "F16") {
    const codes = new BigUint64Array(doubles.buffer);
    for (const [i, value] of floats.entries()) if (Number.isNaN(value)) codes[i] = 0x7fffffffe0000000n;
  }
  return { dtype: "F64", shape: x.shape, bytes: asBytes(doubles) };
}

/** Converts f64 to f32, rounded once to nearest even. */
function fromF64(backend: Backend, x: Value): Value {
  return { dtype: "F32", shape: x.shape, bytes: asBytes(Float32Array.from(toFloat64(backend, x))) };
}

/**
 * Converts among f32, bf16, f16, e4m3 and e5m2 by way of f32, with one rounding to nearest even; overflow gives infinity or NaN.
 * Also converts f32, bf16 and f16 to f64, f64 to all of these dtypes by way of f32, and integers and e8m0 to all of them.
 */
export function conversion(backend: Backend, x: Value, dtype: FileDType): Value {
  if (dtype === x.dtype) return x;
  if (INTEGER_DTYPES.includes(x.dtype)) return conversion(backend, fromIntegers(x), dtype);
  if (x.dtype === "F8_E8M0") return conversion(backend, fromScales(x), dtype);
  if (x.dtype === "F64") return conversion(backend, fromF64(backend, x), dtype);
  if (dtype === "F64") return toF64(backend, x);
  if (dtype === "F8_E8M0") return toScales(backend, x);
  const [sourceType, targetType] = [tensorDType(x.dtype), tensorDType(dtype)];
  if (
    sourceType === undefined ||
    targetType === undefined ||
    !CONVERTIBLE_DTYPES.includes(sourceType) ||
    !CONVERTIBLE_DTYPES.includes(targetType)
  )
    throw new NotModelled(`a conversion from ${x.dtype} to ${dtype}`);
  using _ = new Scope();
  const source = toTensor(backend, x);
  const f32Tensor = isWide(sourceType) ? source : decode(source);
  if (isWide(targetType)) return toValue(scaled(f32Tensor, 1, { outDtype: targetType }));
  return toValue(encode(f32Tensor, { format: targetType, overflow: "nonfinite" }));
}
