/** Tensors as arguments: of which type, of which size, alive, and apart from each other. */
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

/** Throws `ArgumentError` where `out` shares memory with an input that is still read while it is written. */
export function requireApart(op: string, name: string, x: Tensor | undefined, out: Tensor): void {
  if (!x) return;
  const [begin, first] = [out.address, x.address];
  if (!overlap(first, first + x.byteLength, begin, begin + out.byteLength)) return;
  throw new ArgumentError(
    `${op}: out shares memory with ${name}, which is still read while out is written; give another tensor`,
  );
}

/** Whether two ranges of bytes have one in common; an empty one has none. */
function overlap(begin: number, end: number, other: number, otherEnd: number): boolean {
  return begin < otherEnd && other < end && begin < end && other < otherEnd;
}

/** Where the tensors of a check begin and end, written anew by each. */
const begins = new Float64Array(16);
const ends = new Float64Array(16);

/**
 * Throws `ArgumentError` where one of the first `written` tensors shares memory with another tensor. Those that were left
 * out are undefined; `names` are those of all, at most 16.
 */
export function requireAllApart(
  op: string,
  names: readonly string[],
  tensors: readonly (Tensor | undefined)[],
  written: number,
): void {
  const count = tensors.length;
  for (let i = 0; i < count; i++) {
    const x = tensors[i];
    const begin = x ? x.address : 0;
    begins[i] = begin;
    ends[i] = x ? begin + x.byteLength : 0;
  }
  for (let i = 0; i < written; i++) {
    for (let j = i + 1; j < count; j++) {
      if (!overlap(begins[i] as number, ends[i] as number, begins[j] as number, ends[j] as number)) continue;
      throw new ArgumentError(
        `${op}: ${names[i]} shares memory with ${names[j]}, and is written while that is used; give another tensor`,
      );
    }
  }
}
