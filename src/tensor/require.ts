/**
 * Checks of tensors as arguments: their dtype, their size, that they are not disposed, and that they are on one backend. A wide
 * dtype is f32, bf16 or f16.
 */
import { unwrapHint } from "../brand.js";
import { ArgumentError, DisposedError, DTypeError, ShapeError } from "../errors.js";
import { classOf, type Domain, describe, oneOf } from "../options.js";
import { type DType, isWide, storageBits, WIDE_DTYPES, type WideDType } from "./shape.js";
import { isTensor, memoryOfTensor, metaError, Tensor } from "./tensor.js";

/** Checks the name of a wide dtype. */
export const wideDType = oneOf(WIDE_DTYPES);

/** Returns a check that throws `DTypeError` unless the value is one of these dtypes. */
export function dtypeOf(dtypes: readonly DType[]): Domain {
  return (op, name, dtype) => {
    if ((dtypes as readonly unknown[]).includes(dtype)) return dtype as DType;
    throw new DTypeError(`${op}: ${name} is ${describe(dtype)}; it must be one of ${dtypes.join(", ")}`);
  };
}

/** Returns `x` if it is a tensor. Throws `DTypeError` if it is not, `DisposedError` if it or its backend is disposed. */
export function requireTensor(op: string, name: string, x: unknown): Tensor {
  if (!isTensor(x))
    throw new DTypeError(
      `${op}: ${name} is ${describe(x)}, a ${classOf(Object(x)) || "thing"}; it must be a tensor; dequantize what is quantized${unwrapHint(Tensor, x)}`,
    );
  if (x.isMeta) throw metaError(`${op}: ${name}, a ${x.dtype} [${x.shape}] tensor,`);
  if (x.disposed) throw new DisposedError(`${op}: ${name}, a ${x.dtype} [${x.shape}] tensor,`);
  if (memoryOfTensor(x).closed) throw new DisposedError(`${op}: the ${x.backend.name} backend of ${name}`);
  return x;
}

/** Returns `x` if it is an f32, bf16 or f16 tensor. Throws `DTypeError` if it is not, `DisposedError` if it is disposed. */
export function requireWide(op: string, name: string, x: unknown): Tensor<WideDType> {
  const tensor = requireTensor(op, name, x);
  if (isWide(tensor.dtype)) return tensor as Tensor<WideDType>;
  throw new DTypeError(
    `${op}: ${name} is ${tensor.dtype}; it must be f32, bf16 or f16; decode or dequantize it first`,
  );
}

/** Returns `x` if it is an f32 tensor. Throws `DTypeError` if it is not, `DisposedError` if it is disposed. */
export function requireF32(op: string, name: string, x: unknown): Tensor<"f32"> {
  const tensor = requireTensor(op, name, x);
  if (tensor.dtype === "f32") return tensor as Tensor<"f32">;
  throw new DTypeError(`${op}: ${name} is ${tensor.dtype}; it must be f32`);
}

/** Returns `x` if it is a bf16 or f16 tensor. Throws `DTypeError` if it is not, `DisposedError` if it is disposed. */
export function requireHalf(op: string, name: string, x: unknown): Tensor<"bf16" | "f16"> {
  const tensor = requireTensor(op, name, x);
  if (isWide(tensor.dtype) && storageBits(tensor.dtype) === 16) return tensor as Tensor<"bf16" | "f16">;
  throw new DTypeError(`${op}: ${name} is ${tensor.dtype}; it must be bf16 or f16`);
}

/** Returns `x` if it is an i32 tensor. Throws `DTypeError` if it is not, `DisposedError` if it is disposed. */
export function requireI32(op: string, name: string, x: unknown): Tensor<"i32"> {
  const tensor = requireTensor(op, name, x);
  if (tensor.dtype === "i32") return tensor as Tensor<"i32">;
  throw new DTypeError(`${op}: ${name} are ${tensor.dtype}; they must be i32`);
}

/** Returns the check for a tensor that may be left out: it returns undefined for undefined. */
export function optional<T>(
  check: (op: string, name: string, x: unknown) => T,
): (op: string, name: string, x: unknown) => T | undefined {
  return (op, name, x) => (x === undefined ? undefined : check(op, name, x));
}

/** Returns `x` if it is a u32 tensor. Throws `DTypeError` for another dtype, `DisposedError` if it is disposed. */
export function requireWords(op: string, name: string, x: unknown): Tensor<"u32"> {
  const tensor = requireTensor(op, name, x);
  if (tensor.dtype === "u32") return tensor as Tensor<"u32">;
  throw new DTypeError(`${op}: ${name} are ${tensor.dtype}; they must be u32, a word for each element`);
}

/**
 * Returns `x` if it is an f32 tensor of one element. Throws `DTypeError` for another dtype, `ShapeError` for another size.
 */
export function requireScalar(op: string, name: string, x: unknown): Tensor<"f32"> {
  const tensor = requireF32(op, name, x);
  if (tensor.size === 1) return tensor;
  throw new ShapeError(`${op}: ${name} is [${tensor.shape}]; it must be one value, [1]`);
}

/** Throws `ArgumentError` if both tensors are given and live on different backends. */
export function requireTogether(op: string, x: Tensor | undefined, y: Tensor | undefined): void {
  if (x && y && x.backend !== y.backend)
    throw new ArgumentError(
      `${op}: its tensors live on different backends; move them to one by data() and tensor()`,
    );
}
