/** What every operation begins with, checks of its arguments, and ends with: ask the backend, then run. */

import type { Backend } from "../backends/backend.js";
import type { OpArgs, OpName } from "../backends/ops.js";
import { ArgumentError, DTypeError, ShapeError, UnsupportedError } from "../errors.js";
import { type Shape, sameShape, type WideDType } from "../tensor/shape.js";
import { hasType, hasWideType, Tensor } from "../tensor/tensor.js";

/** Runs `op`, or throws `UnsupportedError` with the backend's reason not to. */
export function execute<K extends OpName>(backend: Backend, op: K, args: OpArgs[K]): void {
  const support = backend.supports(op, args);
  if (!support.ok) throw new UnsupportedError(op, support.reason);
  backend.run(op, args);
}

/** `x` as a tensor of f32, bf16 or f16. Throws `DTypeError` for any other. */
export function requireWide(op: string, name: string, x: Tensor): Tensor<WideDType> {
  if (hasWideType(x)) return x;
  throw new DTypeError(
    `${op}: ${name} is ${typeOf(x)}; it must be f32, bf16 or f16; decode or dequantize it first`,
  );
}

/** The type of a tensor, or what stands in its place. */
function typeOf(x: Tensor): string {
  return x instanceof Tensor ? x.dtype : `a ${(x as object).constructor.name}`;
}

/** The backend on which all tensors live. Throws `ArgumentError` where there are several, `DTypeError` for no tensor. */
export function commonBackend(op: string, ...tensors: readonly (Tensor | undefined)[]): Backend {
  let backend: Backend | undefined;
  let several = false;
  for (const tensor of tensors) {
    if (!tensor) continue;
    if (!(tensor instanceof Tensor))
      throw new DTypeError(`${op}: a tensor is needed, not ${typeOf(tensor)}; dequantize what is quantized`);
    backend ??= tensor.backend;
    several ||= tensor.backend !== backend;
  }
  if (backend && !several) return backend;
  throw new ArgumentError(
    `${op}: its tensors live on different backends; move them to one by data() and tensor()`,
  );
}

/** Where a result goes that has the shape of an input. */
export interface ResultOptions {
  /** Default: the type of `out`, else that of the first input. */
  readonly outDtype?: WideDType;
  /** Takes the result; may be an input itself. */
  readonly out?: Tensor;
}

/** `out` if it is given and fits the first of the inputs and `outDtype`, else a new tensor that does. */
export function resultFor(
  op: string,
  inputs: readonly [Tensor<WideDType>, ...Tensor[]],
  { outDtype, out }: ResultOptions,
): Tensor<WideDType> {
  const given = out && requireWide(op, "out", out);
  const backend = commonBackend(op, ...inputs, given);
  const [{ shape, dtype }] = inputs;
  if (!given) return new Tensor(backend, outDtype ?? dtype, shape);
  requireShape(op, "out", given, shape);
  if ((outDtype ?? given.dtype) === given.dtype) return given;
  throw new ArgumentError(`${op}: out is ${given.dtype} and outDtype ${outDtype}; leave outDtype out`);
}

/** Throws `ArgumentError` unless `value` is among `allowed`. */
export function requireOneOf(name: string, value: string, allowed: readonly string[]): void {
  if (!allowed.includes(value))
    throw new ArgumentError(`${name} "${value}" is not one of ${allowed.join(", ")}`);
}

/** Throws `ShapeError` unless `x` has that shape. */
export function requireShape(op: string, name: string, x: Tensor, shape: Shape): void {
  if (!sameShape(x.shape, shape))
    throw new ShapeError(`${op}: ${name} is [${x.shape}]; it must be [${shape}]`);
}

/** Throws `ArgumentError` where `out` shares memory with an input that is still read while it is written. */
export function requireApart(op: string, name: string, x: Tensor | undefined, out: Tensor): void {
  if (!x || x.address >= out.address + out.byteLength || out.address >= x.address + x.byteLength) return;
  throw new ArgumentError(
    `${op}: out shares memory with ${name}, which is still read while out is written; give another tensor`,
  );
}

/** `x` as a tensor of f32. Throws `DTypeError` for any other. */
export function requireF32(op: string, name: string, x: Tensor): Tensor<"f32"> {
  if (hasType(x, "f32")) return x;
  throw new DTypeError(`${op}: ${name} is ${typeOf(x)}; it must be f32`);
}

/** `x` as a tensor of i32. Throws `DTypeError` for any other. */
export function requireI32(op: string, name: string, x: Tensor): Tensor<"i32"> {
  if (hasType(x, "i32")) return x;
  throw new DTypeError(`${op}: ${name} are ${typeOf(x)}; they must be i32`);
}

/** Throws unless an optional input is one f32: `DTypeError` for another type, `ShapeError` for another size. */
export function requireScalar(op: string, name: string, x: Tensor | undefined): void {
  if (x && requireF32(op, name, x).size !== 1)
    throw new ShapeError(`${op}: ${name} is [${x.shape}]; it must be one value, [1]`);
}
