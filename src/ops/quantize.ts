/** Wide matrices to codes and scales. */
import type { Backend } from "../backends/backend.js";
import type { QuantizeArgs, RandomSource } from "../backends/ops.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { copyGeometry, requireQuantizable } from "../tensor/geometry.js";
import {
  type Direction,
  type QuantizedCopy,
  QuantizedTensor,
  type QuantizerOps,
  type QuantizeSpec,
  type ScaleLayout,
  type Usage,
} from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix, type Shape, sameShape, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import { NO_RANDOM } from "./cast.js";
import { commonBackend, execute, requireScalar, requireWide } from "./execute.js";

/** Inputs of one quantization that are not part of the spec. */
export interface QuantizeInputs {
  readonly random?: RandomSource;
  readonly scale?: Tensor<"f32"> | undefined;
  readonly amaxRecord?: Tensor<"f32"> | undefined;
  readonly amax?: Tensor<"f32"> | undefined;
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
  readonly noop?: Tensor<"f32"> | undefined;
}

const SCALARS = ["scale", "amaxRecord", "amax", "amaxColumnwise", "noop"] as const;

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
  const { spec, usage, scaleLayout, ops } = layout;
  if (!usage.rowwise && !usage.columnwise) {
    throw new ArgumentError(`${spec.quantizer}: neither rowwise nor columnwise usage is set; set one`);
  }
  const [rows, columns] = asMatrix(shape);
  requireQuantizable("quantize", spec, rows, columns);
  using scope = new Scope();
  const copy = (direction: Direction): QuantizedCopy => {
    const geometry = copyGeometry(spec, [rows, columns], direction, scaleLayout);
    const data = new Tensor(backend, geometry.dataType, geometry.dataShape);
    const scaleInv = new Tensor(backend, geometry.scaleType, geometry.scaleShape);
    return spec.quantizer === "nvfp4"
      ? { data, scaleInv, amax: new Tensor(backend, "f32", [1]) }
      : { data, scaleInv };
  };
  const fields = { spec, shape, dtype, scaleLayout, ops };
  const rowwise = usage.rowwise ? copy("rowwise") : undefined;
  const columnwise = usage.columnwise ? copy("columnwise") : undefined;
  return scope.keep(new QuantizedTensor({ ...fields, rowwise, columnwise }));
}

/**
 * Quantizes `x` into `target`, all copies it has. Throws `ShapeError` where shapes differ, `DTypeError` for an
 * input that is not f32, bf16 or f16, `ArgumentError` for tensors of several backends, `UnsupportedError` where
 * the backend declines.
 */
export function quantizeInto(x: Tensor, target: QuantizedTensor, inputs: QuantizeInputs = {}): void {
  const source = requireWide("quantize", "x", x);
  if (!sameShape(x.shape, target.shape)) {
    throw new ShapeError(`quantize: x is [${x.shape}], the target [${target.shape}]; they must be equal`);
  }
  const { spec } = target;
  for (const name of SCALARS) requireScalar("quantize", name, inputs[name]);
  const scalars = SCALARS.map((name) => inputs[name]);
  const backend = commonBackend("quantize", x, ...target.members, ...scalars);
  if (spec.quantizer === "fp8-delayed" && !inputs.scale) {
    throw new ArgumentError("quantize: fp8-delayed needs a scale tensor, f32 [1]");
  }
  if (spec.rht && x.dtype !== "bf16" && target.columnwise) {
    throw new ArgumentError(
      `quantize: the random Hadamard transform takes bf16 input; x is ${x.dtype}; cast it to bf16`,
    );
  }
  const args: QuantizeArgs = {
    ...inputs,
    x: source,
    spec,
    random: inputs.random ?? NO_RANDOM,
    scaleLayout: target.scaleLayout,
    rowwise: target.rowwise,
    columnwise: target.columnwise,
  };
  execute(backend, "quantize", args);
}
