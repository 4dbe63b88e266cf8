/** Quantized tensors as plain data, and the conversion of specs and scale layouts to the oracle's form. */
import type { Backend } from "../../../src/backends/backend.js";
import type { QuantizeInputs } from "../../../src/ops/quantize/quantize.js";
import { Quantizer } from "../../../src/quantizers/quantizer.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizedTensor,
  type QuantizeSpec,
  type ScaleLayout,
  type Usage,
} from "../../../src/tensor/quantized.js";
import type { Shape } from "../../../src/tensor/shape.js";
import { padScales, type ScaleMatrix, swizzleScales } from "../../oracle/layout/layout.js";
import type * as oracle from "../../oracle/quantize/quantize.js";
import { download, fromCodes, type PlainTensor } from "../../values/plain.js";
import type { Answer } from "../operation.js";

/** A quantizer with any spec and explicit inputs. */
export class SpecQuantizer extends Quantizer {
  readonly #inputs: QuantizeInputs;

  constructor(
    spec: QuantizeSpec,
    layout: Usage & { readonly scaleLayout: ScaleLayout },
    inputs: QuantizeInputs = {},
  ) {
    super(spec, layout);
    this.#inputs = inputs;
  }

  protected override inputs(): QuantizeInputs {
    return this.#inputs;
  }
}

/** The copies of a quantized tensor, named as on the command line. */
export function downloadQuantized(t: QuantizedTensor): Answer {
  const answer: Record<string, PlainTensor> = {};
  for (const direction of DIRECTIONS) {
    const copy = t[direction];
    if (!copy) continue;
    answer[`${direction}.data`] = download(copy.data);
    answer[`${direction}.scaleInv`] = download(copy.scaleInv);
    if (copy.amax) answer[`${direction}.amax`] = download(copy.amax);
  }
  return answer;
}

/** Creates a quantized tensor with one copy from its data, scales and amax. */
export function uploadQuantized(
  backend: Backend,
  spec: QuantizeSpec,
  shape: Shape,
  direction: Direction,
  scaleLayout: ScaleLayout,
  parts: {
    readonly data: PlainTensor;
    readonly scaleInv: PlainTensor;
    readonly amax?: PlainTensor | undefined;
  },
): QuantizedTensor {
  const usage = { rowwise: direction === "rowwise", columnwise: direction === "columnwise" };
  const empty = new SpecQuantizer(spec, { ...usage, scaleLayout }).makeEmpty(backend, shape, "f32");
  const copy = empty.copy(direction);
  copy.data.write(parts.data.data);
  copy.scaleInv.write(parts.scaleInv.data);
  if (copy.amax && parts.amax) copy.amax.write(parts.amax.data);
  return empty;
}

/** The spec in the oracle's form, without usage and inputs. */
export function oracleSpec(spec: QuantizeSpec): oracle.QuantizeSpec {
  const {
    quantizer,
    format,
    tile,
    compact,
    pow2Scales,
    amaxEpsilon,
    amaxLimit,
    rht,
    rhtSigns,
    stochastic,
    fourOverSix,
    e4m3Max,
    rowScaled,
    scaleRule,
    elementScaling,
  } = spec;
  return {
    quantizer,
    compact,
    pow2Scales,
    amaxEpsilon,
    amaxLimit,
    rht,
    rhtSigns: rhtSigns !== 0,
    stochastic,
    format: format as NonNullable<oracle.QuantizeSpec["format"]>,
    ...(tile === "tensor" ? {} : { tile }),
    elementScaling,
    scaleRule,
    ...(fourOverSix === "none" ? {} : { fourOverSix, e4m3Max }),
    ...(rowScaled ? { rowScaled } : {}),
  };
}

/** The oracle's conversion of logical scales to `layout`. */
export function layOut(
  logical: ScaleMatrix,
  spec: QuantizeSpec,
  direction: Direction,
  layout: ScaleLayout,
): ScaleMatrix {
  if (layout === "logical" || spec.tile === "tensor" || spec.compact) return logical;
  const arrange = layout === "padded" ? padScales : swizzleScales;
  return arrange(logical, oracleSpec(spec), direction);
}

/** Scale codes, or f32 bit patterns, as a tensor of the type and shape that geometry.ts defines. */
export function scaleTensor(
  values: readonly number[],
  spec: QuantizeSpec,
  matrix: readonly [number, number],
  direction: Direction,
  layout: ScaleLayout,
): PlainTensor {
  const { scaleType, scaleShape } = copyGeometry(spec, matrix, direction, layout);
  return fromCodes(scaleType, scaleShape, values);
}
