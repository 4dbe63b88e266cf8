/** Wide matrices to codes and scales. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { hasGivenScale } from "../../formats/block.js";
import type { RandomSource } from "../../random.js";
import type { QuantizedTensor, QuantizeSpec, Usage } from "../../tensor/quantized.js";
import { requireScalar, requireWide } from "../../tensor/require.js";
import { orDispose } from "../../tensor/scope.js";
import { sameShape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { NO_RANDOM } from "../cast/cast.js";
import { execute, requireBackendOf } from "../execute.js";
import { HADAMARD_DTYPE } from "./hadamard.js";
import { allocateQuantized, type QuantizedLayout } from "./target.js";

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

/**
 * `x` quantized into a new tensor. Throws `DTypeError` for an input that is not f32, bf16 or f16, `ShapeError` where the format
 * cannot take its shape, `ArgumentError` for tensors of several backends or without any usage, `UnsupportedError` where the
 * backend declines.
 */
export function quantize(x: Tensor, layout: QuantizedLayout, inputs: QuantizeInputs): QuantizedTensor {
  const source = requireWide("quantize", "x", x);
  const given = requireInputs("quantize", source, layout, inputs);
  const { backend, shape, dtype } = source;
  return orDispose((made) => {
    const target = allocateQuantized(backend, shape, dtype, layout, made);
    const { rowwise, columnwise } = target;
    execute(backend, "quantize", { x: source, ...given, rowwise, columnwise });
    return target;
  });
}

/**
 * Quantizes `x` into `target`, a quantized tensor in use: all copies it has. Throws `ShapeError` where shapes differ, else as
 * `quantize`.
 */
export function quantizeInto(x: Tensor, target: QuantizedTensor, inputs: QuantizeInputs): void {
  const source = requireWide("quantize", "x", x);
  if (!sameShape(source.shape, target.shape)) {
    throw new ShapeError(`quantize: x is [${x.shape}], the target [${target.shape}]; they must be equal`);
  }
  requireBackendOf("quantize", source, target);
  const { spec, usage, rowwise, columnwise } = target;
  const given = requireInputs("quantize", source, { spec, usage }, inputs);
  execute(source.backend, "quantize", { x: source, ...given, rowwise, columnwise });
}

/** Throws `ArgumentError` where columnwise codes are transformed first and values of that type cannot be. */
export function requireTransformable(op: string, { rht }: QuantizeSpec, dtype: WideDType): void {
  if (rht && dtype !== HADAMARD_DTYPE)
    throw new ArgumentError(
      `${op}: the random Hadamard transform takes ${HADAMARD_DTYPE} input; x is ${dtype}; cast it to ${HADAMARD_DTYPE}`,
    );
}

/**
 * What decides the bits of a quantization besides its source: the arguments that do not depend on where it goes. `values` are
 * what is quantized, on the backend of the call. Throws `ArgumentError` for an input on another backend and for one that the
 * spec needs and lacks, `DTypeError` or `ShapeError` for one that is not f32 [1].
 */
export function requireInputs(
  op: string,
  values: Pick<Tensor<WideDType>, "backend" | "dtype">,
  { spec, usage }: Pick<QuantizedLayout, "spec"> & { readonly usage: Usage },
  inputs: QuantizeInputs,
) {
  const { random = NO_RANDOM, scale, amaxRecord, amax, amaxColumnwise, noop } = inputs;
  requireScalar(op, "scale", scale);
  requireScalar(op, "amaxRecord", amaxRecord);
  requireScalar(op, "amax", amax);
  requireScalar(op, "amaxColumnwise", amaxColumnwise);
  requireScalar(op, "noop", noop);
  requireBackendOf(op, values, scale, amaxRecord, amax, amaxColumnwise, noop);
  if (hasGivenScale(spec) && !scale) {
    throw new ArgumentError(`${op}: ${spec.quantizer} needs a scale tensor, f32 [1]`);
  }
  if (usage.columnwise) requireTransformable(op, spec, values.dtype);
  return { spec, random, scale, amaxRecord, amax, amaxColumnwise, noop };
}
