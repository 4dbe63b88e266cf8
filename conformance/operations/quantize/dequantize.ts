/** The operation `dequantize`: any codes under any scales, including scales that no quantizer chooses. */
import * as fc from "fast-check";
import { BLOCK_FORMATS, type BlockFormatName } from "../../../src/formats/block.js";
import { factsOf } from "../../../src/formats/derive.js";
import { type CopyGeometry, copyGeometry } from "../../../src/tensor/geometry.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizeSpec,
  type ScaleLayout,
} from "../../../src/tensor/quantized.js";
import {
  asMatrix,
  elementCount,
  type Shape,
  WIDE_DTYPES,
  type WideDType,
} from "../../../src/tensor/shape.js";
import { anyRows, drawnBlock } from "../../arbitraries/matrices.js";
import { anyPattern, specialPattern } from "../../arbitraries/patterns.js";
import { words } from "../../arbitraries/random.js";
import { layoutsOf, quantizeSpec } from "../../arbitraries/specs.js";
import { oneAmong, type Supported } from "../../arbitraries/supported.js";
import { wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/quantize/dequantize.js";
import { download, fromCodes, type PlainTensor } from "../../values/plain.js";
import type { Operation } from "../operation.js";
import type { Shapes } from "./quantize.js";
import { layOut, oracleSpec, uploadQuantized } from "./quantized.js";

/** One input of the operation `dequantize`, as plain data. */
export interface DequantizeCase {
  /** The quantizer that the copy belongs to. */
  readonly spec: QuantizeSpec;
  /** The logical shape. */
  readonly shape: Shape;
  /** The direction of the copy. */
  readonly direction: Direction;
  /** The layout of the scales. */
  readonly scaleLayout: ScaleLayout;
  /** The codes. */
  readonly data: PlainTensor;
  /** The scales in `scaleLayout`. */
  readonly scaleInv: PlainTensor;
  /** The scales in logical layout. */
  readonly logicalScales: PlainTensor;
  /** The amax of the tensor or of each line; NVFP4 only. */
  readonly amax?: PlainTensor | undefined;
  /** The type of the results. */
  readonly dtype: WideDType;
}

/** Scale codes: f32 bit patterns of every size, or any byte of the scale format. */
function scaleCodes(spec: QuantizeSpec, seed: number, count: number, plant: number): number[] {
  const { scale } = BLOCK_FORMATS[spec.quantizer];
  return Array.from(words(seed, count), (word, i) => {
    if (scale !== "f32") return (seed === 0 ? 127 : word) % 256;
    if (i === plant % count) return plant;
    return seed === 0 ? 0x3f800000 : (word & 0x7fffff) | ((64 + (word >>> 25)) << 23);
  });
}

/** The amax of a copy that stores one, or its line amaxes, of which `planted` is the first. */
function amaxesOf({ amaxShape }: CopyGeometry, seed: number, planted: number): Pick<DequantizeCase, "amax"> {
  if (!amaxShape) return {};
  const others = words(seed, elementCount(amaxShape));
  const codes = Array.from(others, (word, i) => (i === 0 ? planted : word & 0x7fffffff));
  return { amax: fromCodes("f32", amaxShape, codes) };
}

const smallShapes: Shapes = (multiple, block) => anyRows(multiple, block, 4096);

/** Calls with tensors of these shapes and quantizers. */
export function dequantizeCase(
  shapes = smallShapes,
  names?: readonly BlockFormatName[],
): fc.Arbitrary<DequantizeCase> {
  return dequantizeCaseBy(quantizeSpec(names), shapes);
}

/** As `dequantizeCase`, with specs that the caller draws; copies, layouts and types are restricted to what a subject supports. */
export function dequantizeCaseBy(
  specs: fc.Arbitrary<QuantizeSpec>,
  shapes = smallShapes,
  supported: Supported = {},
): fc.Arbitrary<DequantizeCase> {
  return specs.chain((spec) => {
    const { multiple } = BLOCK_FORMATS[spec.quantizer];
    const pattern = fc.oneof(specialPattern(), anyPattern());
    return fc
      .record({
        shape: shapes(multiple, drawnBlock(spec.tile)),
        direction: oneAmong(supported, "direction", DIRECTIONS),
        scaleLayout: oneAmong(supported, "scaleLayout", layoutsOf(spec)),
        seed: fc.nat(),
        plant: pattern,
        amax: fc.oneof(fc.constantFrom(0x3f800000, 0x45280000), pattern),
        dtype: oneAmong(supported, "dtype", WIDE_DTYPES, wideType()),
      })
      .map(({ seed, plant, amax, ...rest }) => {
        const matrix = asMatrix(rest.shape);
        const logical = copyGeometry(spec, matrix, rest.direction, "logical");
        const stored = copyGeometry(spec, matrix, rest.direction, rest.scaleLayout);
        const scales = scaleCodes(spec, seed, elementCount(logical.scaleShape), plant);
        const codes = Array.from(
          words(seed, elementCount(stored.dataShape)),
          (word) => (word >>> 24) % 2 ** factsOf(spec.format).bits,
        );
        const laidOut = layOut(
          { values: scales, shape: logical.logicalScale },
          spec,
          rest.direction,
          rest.scaleLayout,
        );
        return {
          ...rest,
          spec,
          data: fromCodes(stored.dataType, stored.dataShape, codes),
          scaleInv: fromCodes(stored.scaleType, stored.scaleShape, laidOut.values),
          logicalScales: fromCodes(logical.scaleType, logical.scaleShape, scales),
          ...amaxesOf(stored, seed, amax),
        };
      });
  });
}

export const dequantizeOperation: Operation<DequantizeCase> = {
  arbitrary: dequantizeCase(),
  run(backend, { spec, shape, direction, scaleLayout: layout, dtype, ...parts }) {
    return {
      values: download(uploadQuantized(backend, spec, shape, direction, layout, parts).dequantize(dtype)),
    };
  },
  oracle({ spec, shape, direction, data, logicalScales, amax, dtype }) {
    const copy = {
      codes: Uint8Array.from(data.codes),
      shape: asMatrix(data.shape),
      scale: Array.from(logicalScales.codes),
      scaleShape: logicalScales.shape,
      ...(amax ? { amax: amax.codes[0] as number, amaxes: Array.from(amax.codes) } : {}),
    };
    const values = oracle.dequantize(copy, direction, oracleSpec(spec), dtype);
    return { values: fromCodes(dtype, shape, values.subarray(0, elementCount(shape))) };
  },
};
