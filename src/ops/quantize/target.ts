/** Creation of uninitialized quantized tensors, which a quantization then writes. */
import { type Backend, requireBackend } from "../../backends/backend.js";
import { ArgumentError } from "../../errors.js";
import { type CopyGeometry, geometryOf } from "../../tensor/geometry.js";
import {
  type QuantizedCopy,
  type QuantizedTensor,
  type QuantizerOps,
  type QuantizeSpec,
  type ScaleLayout,
  trustedQuantized,
  type Usage,
} from "../../tensor/quantized.js";
import { wideDType } from "../../tensor/require.js";
import { type Owned, orDispose } from "../../tensor/scope.js";
import { asMatrix, ownShape, type Shape, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";

/** @shared The properties of a quantized tensor that is to be created. */
export interface QuantizedLayout {
  readonly spec: QuantizeSpec;
  readonly usage: Usage;
  readonly scaleLayout: ScaleLayout;
  readonly ops: QuantizerOps;
}

/**
 * Creates an uninitialized quantized tensor of `shape` and nominal type `dtype`. Throws `ShapeError` for a shape that the
 * format's blocks do not divide, `ArgumentError` if neither copy is wanted.
 *
 * @shared
 */
export function emptyQuantized(
  backend: Backend,
  shape: Shape,
  dtype: WideDType,
  layout: QuantizedLayout,
): QuantizedTensor {
  requireBackend("makeEmpty", backend);
  wideDType("makeEmpty", "dtype", dtype);
  const shapeCopy = ownShape(shape);
  return orDispose((allocated) => allocateQuantized(backend, shapeCopy, dtype, layout, allocated));
}

/**
 * As `emptyQuantized`, but does not check its arguments: an open backend, a normalized shape, and f32, bf16 or f16 as dtype. The
 * new tensors are added to `allocated`.
 *
 * @shared
 */
export function allocateQuantized(
  backend: Backend,
  shape: Shape,
  dtype: WideDType,
  { spec, usage, scaleLayout, ops }: QuantizedLayout,
  allocated: Owned[],
): QuantizedTensor {
  if (!usage.rowwise && !usage.columnwise) {
    throw new ArgumentError(`${spec.quantizer}: neither rowwise nor columnwise usage is set; set one`);
  }
  const geometry = geometryOf("quantize", spec, asMatrix(shape), usage, scaleLayout);
  const rowwise = geometry.rowwise && allocateCopy(backend, geometry.rowwise, allocated);
  const columnwise = geometry.columnwise && allocateCopy(backend, geometry.columnwise, allocated);
  return trustedQuantized({ spec, shape, dtype, scaleLayout, ops, rowwise, columnwise });
}

function allocateCopy(backend: Backend, geometry: CopyGeometry, allocated: Owned[]): QuantizedCopy {
  const data = new Tensor(backend, geometry.dataType, geometry.dataShape);
  allocated.push(data);
  const scaleInv = new Tensor(backend, geometry.scaleType, geometry.scaleShape);
  allocated.push(scaleInv);
  if (!geometry.amaxShape) return { data, scaleInv, geometry };
  const amax = new Tensor(backend, "f32", geometry.amaxShape);
  allocated.push(amax);
  return { data, scaleInv, geometry, amax };
}
