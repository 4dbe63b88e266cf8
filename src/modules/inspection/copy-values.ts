/** The values of one copy of a quantized tensor on the host, from which statistics are computed. */
import { factsOf } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { castTo, decode } from "../../ops/cast/cast.js";
import { fromBytes } from "../../ops/create.js";
import { transpose } from "../../ops/layout/layout.js";
import { codeValues } from "../../ops/quantize/dequantize.js";
import { hadamard } from "../../ops/quantize/hadamard.js";
import { blockScaleIndex } from "../../tensor/places.js";
import type { Direction, QuantizedCopy, QuantizedTensor } from "../../tensor/quantized.js";
import { requireF32 } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, byteLength, type WideDType } from "../../tensor/shape.js";
import { transformOf } from "../../tensor/spec.js";
import { hasType, type Tensor } from "../../tensor/tensor.js";

/** Which values are read in addition to the tensor that was quantized. */
export interface CopyReads {
  /** The values of the codes. */
  readonly decoded: boolean;
  /** The largest values under each element's scale. */
  readonly limits: boolean;
  readonly scales: boolean;
}

/**
 * The values of one copy. A copy that was quantized with the random Hadamard transform has the transformed values, rows of zeros
 * in its last blocks included; any other copy has the values of the tensor.
 */
export interface CopyValues {
  /** The values that were quantized. */
  readonly source: Float32Array;
  /** code * scale of each element. */
  readonly decoded: Float32Array | undefined;
  /** The largest value of the element format times the scale of each element. */
  readonly limits: Float32Array | undefined;
  /** The stored scales without padding. */
  readonly scales: Float32Array | undefined;
}

/** Reads the values of a copy and waits for the device. `source` is the tensor that was quantized. */
export function readCopy(
  t: QuantizedTensor,
  direction: Direction,
  source: Tensor<WideDType>,
  reads: CopyReads,
): CopyValues {
  using _ = new Scope();
  const copy = t.copy(direction);
  return {
    source: requireF32("Inspector", "x", castTo(quantizedValues(t, direction, source), "f32")).dataSync(),
    decoded: reads.decoded ? codeValues(t, copy, "f32").dataSync() : undefined,
    limits: reads.limits ? codeValues(t, largest(t.spec.format, copy), "f32").dataSync() : undefined,
    scales: reads.scales ? scaleValues(copy) : undefined,
  };
}

/** Returns the values that a copy quantizes, in the order of `codeValues`. */
function quantizedValues(
  { spec }: QuantizedTensor,
  direction: Direction,
  source: Tensor<WideDType>,
): Tensor<WideDType> {
  const signs = transformOf(spec, direction);
  if (signs === undefined) return source;
  return transpose(
    hadamard(castTo(source, "bf16").reshape(asMatrix(source.shape)), signs),
  ) as Tensor<WideDType>;
}

/** Returns a copy with the same scales in which every code is the code of the largest value. */
function largest(format: ScalarFormat, copy: QuantizedCopy): QuantizedCopy {
  const { backend } = copy.data;
  const { dataShape } = copy.geometry;
  const { maxCode, storageBits } = factsOf(format);
  const byte = storageBits === 4 ? maxCode * 17 : maxCode;
  const bytes = new Uint8Array(byteLength(format, dataShape)).fill(byte);
  return { ...copy, data: fromBytes(backend, bytes, dataShape, format) };
}

function scaleValues({ scaleInv, geometry: { placement } }: QuantizedCopy): Float32Array {
  const storedScales = (hasType(scaleInv, "f32") ? scaleInv : decode(scaleInv)).dataSync();
  const { lines, blocks } = placement;
  const scales = new Float32Array(lines * blocks);
  for (let i = 0; i < lines; i++)
    for (let j = 0; j < blocks; j++)
      scales[i * blocks + j] = storedScales[blockScaleIndex(placement, i, j)] as number;
  return scales;
}
