/**
 * Quantization of f32, bf16 and f16 tensors to codes and scales. A quantized tensor has a rowwise copy, a columnwise copy, or
 * both.
 */
import { type Backend, requireBackend } from "../../backends/backend.js";
import type { QuantizeArgs } from "../../backends/ops.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import { blockFormat, hasGivenScale } from "../../formats/block.js";
import type { RandomSource } from "../../random.js";
import { copyGeometry, requireQuantizable } from "../../tensor/geometry.js";
import {
  type Direction,
  type QuantizedCopy,
  type QuantizedTensor,
  type QuantizerOps,
  type QuantizeSpec,
  requireQuantized,
  type ScaleLayout,
  trustedQuantized,
  type Usage,
} from "../../tensor/quantized.js";
import { requireScalar, requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, ownShape, type Shape, sameShape, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { NO_RANDOM } from "../cast/cast.js";
import { commonBackend, execute } from "../execute.js";
import { HADAMARD_DTYPE } from "./hadamard.js";

/** The inputs of one quantization besides the tensor and the spec. Tensors are f32 [1]. */
export interface QuantizeInputs {
  /** The random bits. Required if the spec rounds stochastically. */
  readonly random?: RandomSource | undefined;
  /** For fp8-delayed, where it is required: the factor by which elements are multiplied. */
  readonly scale?: Tensor<"f32"> | undefined;
  /** For fp8-delayed: a tensor that is set to the maximum of its value and max |x|. */
  readonly amaxRecord?: Tensor<"f32"> | undefined;
  /** For fp8-current and the rowwise copy of nvfp4: an amax that is used instead of the tensor's own. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** The same as `amax` for the columnwise copy of nvfp4. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
  /** A flag, read on the device. If it is exactly 1, the target is not changed. */
  readonly noop?: Tensor<"f32"> | undefined;
}

const SCALAR: Shape = Object.freeze([1]);

/** The properties of a quantized tensor that is to be created. */
export interface QuantizedLayout {
  readonly spec: QuantizeSpec;
  readonly usage: Usage;
  readonly scaleLayout: ScaleLayout;
  readonly ops: QuantizerOps;
}

/**
 * Creates an uninitialized quantized tensor of `shape` and nominal type `dtype`. Throws `ShapeError` for a shape that the
 * format's blocks do not divide, `ArgumentError` if neither copy is wanted.
 */
export function emptyQuantized(
  backend: Backend,
  shape: Shape,
  dtype: WideDType,
  layout: QuantizedLayout,
): QuantizedTensor {
  requireBackend("makeEmpty", backend);
  wideDType("makeEmpty", "dtype", dtype);
  const { spec, usage, scaleLayout, ops } = layout;
  if (!usage.rowwise && !usage.columnwise) {
    throw new ArgumentError(`${spec.quantizer}: neither rowwise nor columnwise usage is set; set one`);
  }
  const own = ownShape(shape);
  const size = asMatrix(own);
  requireQuantizable("quantize", spec, size[0], size[1]);
  const { tensorAmax } = blockFormat(spec.quantizer);
  const scope = new Scope();
  try {
    const copy = (direction: Direction): QuantizedCopy => {
      const geometry = copyGeometry(spec, size, direction, scaleLayout);
      const data = new Tensor(backend, geometry.dataType, geometry.dataShape);
      const scaleInv = new Tensor(backend, geometry.scaleType, geometry.scaleShape);
      return tensorAmax
        ? { data, scaleInv, geometry, amax: new Tensor(backend, "f32", SCALAR) }
        : { data, scaleInv, geometry };
    };
    const rowwise = usage.rowwise ? copy("rowwise") : undefined;
    const columnwise = usage.columnwise ? copy("columnwise") : undefined;
    return scope.keep(trustedQuantized({ spec, shape: own, dtype, scaleLayout, ops, rowwise, columnwise }));
  } finally {
    scope.dispose();
  }
}

/**
 * Quantizes `x` into all copies of `target`. Throws `ShapeError` for different shapes, `DTypeError` for an input that is not
 * f32, bf16 or f16, `ArgumentError` for tensors on different backends, `UnsupportedError` if the backend does not support the
 * operation.
 */
export function quantizeInto(x: Tensor, target: QuantizedTensor, inputs: QuantizeInputs = {}): void {
  const source = requireWide("quantize", "x", x);
  requireQuantized("quantize", "the target", target);
  if (!sameShape(x.shape, target.shape)) {
    throw new ShapeError(`quantize: x is [${x.shape}], the target [${target.shape}]; they must be equal`);
  }
  const args = quantization("quantize", [source], source.dtype, target, inputs);
  execute(x.backend, "quantize", { x: source, ...args });
}

/** Throws `ArgumentError` if the spec transforms columnwise data and values of that dtype cannot be transformed. */
export function requireTransformable(op: string, { rht }: QuantizeSpec, dtype: WideDType): void {
  if (rht && dtype !== HADAMARD_DTYPE)
    throw new ArgumentError(
      `${op}: the random Hadamard transform takes ${HADAMARD_DTYPE} input; x is ${dtype}; cast it to ${HADAMARD_DTYPE}`,
    );
}

/**
 * Checks and returns the arguments of a quantization into `target`, except its source. `dtype` is the dtype of the quantized
 * values; `sources` are the tensors that the operation `op` reads. Throws as `quantizeInto` does.
 */
export function quantization(
  op: string,
  sources: readonly (Tensor | undefined)[],
  dtype: WideDType,
  target: QuantizedTensor,
  inputs: QuantizeInputs,
): Omit<QuantizeArgs, "x"> {
  const { spec } = target;
  const { random = NO_RANDOM, scale, amaxRecord, amax, amaxColumnwise, noop } = inputs;
  requireScalar(op, "scale", scale);
  requireScalar(op, "amaxRecord", amaxRecord);
  requireScalar(op, "amax", amax);
  requireScalar(op, "amaxColumnwise", amaxColumnwise);
  requireScalar(op, "noop", noop);
  const { rowwise: r, columnwise: c } = target;
  const tensors = [r?.data, r?.scaleInv, r?.amax, c?.data, c?.scaleInv, c?.amax, amaxRecord];
  tensors.push(scale, amax, amaxColumnwise, noop, ...sources);
  commonBackend(op, ...tensors);
  if (hasGivenScale(spec) && !inputs.scale) {
    throw new ArgumentError(`${op}: ${spec.quantizer} needs a scale tensor, f32 [1]`);
  }
  if (target.columnwise) requireTransformable(op, spec, dtype);
  const { rowwise, columnwise } = target;
  return { spec, random, rowwise, columnwise, scale, amaxRecord, amax, amaxColumnwise, noop };
}
