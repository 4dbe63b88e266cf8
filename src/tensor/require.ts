/** Tensors as arguments: of which type, of which size, alive, and on one backend. */
import { ArgumentError, DisposedError, DTypeError, ShapeError } from "../errors.js";
import { classOf, type Domain, describe, oneOf } from "../options.js";
import { type DType, isWide, storageBits, WIDE_DTYPES, type WideDType } from "./shape.js";
import { Tensor } from "./tensor.js";

/** The name of a wide type. */
export const wideDType = oneOf(WIDE_DTYPES);

/** As `oneOf`, of element types. Throws `DTypeError` for any other. */
export function dtypeOf(dtypes: readonly DType[]): Domain {
  return (op, name, dtype) => {
    if (!(dtypes as readonly unknown[]).includes(dtype))
      throw new DTypeError(`${op}: ${name} is ${describe(dtype)}; it must be one of ${dtypes.join(", ")}`);
  };
}

/** `x` as a tensor in use. Throws `DTypeError` for anything else, `DisposedError` for one whose memory is gone. */
export function requireTensor(op: string, name: string, x: unknown): Tensor {
  if (!(x instanceof Tensor))
    throw new DTypeError(
      `${op}: ${name} is ${describe(x)}, a ${classOf(Object(x)) || "thing"}; it must be a tensor; dequantize what is quantized`,
    );
  if (x.disposed) throw new DisposedError(`${op}: ${name}, a ${x.dtype} [${x.shape}] tensor,`);
  if (x.backend.memory.closed) throw new DisposedError(`${op}: the ${x.backend.name} backend of ${name}`);
  return x;
}

/** `x` as a tensor of f32, bf16 or f16. Throws `DTypeError` for any other, and as `requireTensor`. */
export function requireWide(op: string, name: string, x: unknown): Tensor<WideDType> {
  const tensor = requireTensor(op, name, x);
  if (isWide(tensor.dtype)) return tensor as Tensor<WideDType>;
  throw new DTypeError(
    `${op}: ${name} is ${tensor.dtype}; it must be f32, bf16 or f16; decode or dequantize it first`,
  );
}

/** `x` as a tensor of f32. Throws `DTypeError` for any other. */
export function requireF32(op: string, name: string, x: unknown): Tensor<"f32"> {
  const tensor = requireTensor(op, name, x);
  if (tensor.dtype === "f32") return tensor as Tensor<"f32">;
  throw new DTypeError(`${op}: ${name} is ${tensor.dtype}; it must be f32`);
}

/** `x` as a tensor of bf16 or f16. Throws `DTypeError` for any other. */
export function requireHalf(op: string, name: string, x: unknown): Tensor<"bf16" | "f16"> {
  const tensor = requireTensor(op, name, x);
  if (isWide(tensor.dtype) && storageBits(tensor.dtype) === 16) return tensor as Tensor<"bf16" | "f16">;
  throw new DTypeError(`${op}: ${name} is ${tensor.dtype}; it must be bf16 or f16`);
}

/** `x` as a tensor of i32. Throws `DTypeError` for any other. */
export function requireI32(op: string, name: string, x: unknown): Tensor<"i32"> {
  const tensor = requireTensor(op, name, x);
  if (tensor.dtype === "i32") return tensor as Tensor<"i32">;
  throw new DTypeError(`${op}: ${name} are ${tensor.dtype}; they must be i32`);
}

/** `x` as one f32 value, undefined where it is left out. Throws `DTypeError` for another type, `ShapeError` for another size. */
export function requireScalar(op: string, name: string, x: unknown): Tensor<"f32"> | undefined {
  if (x === undefined) return undefined;
  const tensor = requireF32(op, name, x);
  if (tensor.size === 1) return tensor;
  throw new ShapeError(`${op}: ${name} is [${tensor.shape}]; it must be one value, [1]`);
}

/** Throws `ArgumentError` where two tensors that may be left out live on different backends. */
export function requireTogether(op: string, x: Tensor | undefined, y: Tensor | undefined): void {
  if (x && y && x.backend !== y.backend)
    throw new ArgumentError(
      `${op}: its tensors live on different backends; move them to one by data() and tensor()`,
    );
}
