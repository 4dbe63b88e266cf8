/** Wide matrices to codes and scales. */
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

/** Inputs of one quantization that are not part of the spec. */
export interface QuantizeInputs {
  /** Random bits of this quantization; needed where the spec rounds stochastically. */
  readonly random?: RandomSource | undefined;
  /** fp8-delayed: the factor of elements, f32 [1]; needed there. */
  readonly scale?: Tensor<"f32"> | undefined;
  /** fp8-delayed: raised to max |x| where that is larger, f32 [1]. */
  readonly amaxRecord?: Tensor<"f32"> | undefined;
  /** Taken in place of the tensor's own amax, f32 [1]: fp8-current, and the rowwise copy of nvfp4. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** As `amax`, for the columnwise copy of nvfp4. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
  /** The target stays as it is where this f32 [1] holds exactly 1. */
  readonly noop?: Tensor<"f32"> | undefined;
}

const SCALAR: Shape = Object.freeze([1]);

/** What a quantized tensor is to be. */
export interface QuantizedLayout {
  readonly spec: QuantizeSpec;
  readonly usage: Usage;
  readonly scaleLayout: ScaleLayout;
  readonly ops: QuantizerOps;
}

/**
 * An uninitialised quantized tensor that stands for `shape` and `dtype`. Throws `ShapeError` where the format
 * cannot take the shape, `ArgumentError` without any usage.
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
 * Quantizes `x` into `target`, all copies it has. Throws `ShapeError` where shapes differ, `DTypeError` for an
 * input that is not f32, bf16 or f16, `ArgumentError` for tensors of several backends, `UnsupportedError` where
 * the backend declines.
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

/** Throws `ArgumentError` where columnwise codes are transformed first and values of that type cannot be. */
export function requireTransformable(op: string, { rht }: QuantizeSpec, dtype: WideDType): void {
  if (rht && dtype !== HADAMARD_DTYPE)
    throw new ArgumentError(
      `${op}: the random Hadamard transform takes ${HADAMARD_DTYPE} input; x is ${dtype}; cast it to ${HADAMARD_DTYPE}`,
    );
}

/**
 * The arguments of a quantization of `dtype` values into `target`, its source aside. Throws as `quantizeInto`, for an
 * operation `op` that reads `sources`.
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
