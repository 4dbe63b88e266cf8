/** The operations `transpose` and `swapAxes`, and conversions of scale layouts: rearrangements that change no value. */
import * as fc from "fast-check";
import { BLOCK_FORMATS } from "../../../src/formats/block.js";
import { relayoutScales, swapAxes, transpose } from "../../../src/ops/layout/layout.js";
import { copyGeometry } from "../../../src/tensor/geometry.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizeSpec,
  type ScaleLayout,
} from "../../../src/tensor/quantized.js";
import { asMatrix, type DType, elementCount, type Shape, storageBits } from "../../../src/tensor/shape.js";
import { anyRows, drawnBlock } from "../../arbitraries/matrices.js";
import { words } from "../../arbitraries/random.js";
import { quantizeSpec, scaleLayout } from "../../arbitraries/specs.js";
import * as oracle from "../../oracle/layout/layout.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import type { Operation } from "../operation.js";
import { layOut, scaleTensor, uploadQuantized } from "../quantize/quantized.js";

export interface TransposeCase {
  readonly x: PlainTensor;
}

const ELEMENTS = ["u8", "e4m3", "bf16", "u16", "f32", "u32"] as const;
const size = fc.oneof(fc.integer({ min: 0, max: 20 }), fc.constantFrom(31, 32, 33, 63, 65, 130));

function transposeCase(): fc.Arbitrary<TransposeCase> {
  const shape = fc
    .tuple(size, size, fc.constantFrom(1, 1, 2))
    .map(([rows, columns, lead]) => (lead === 1 ? [rows, columns] : [lead, rows, columns]));
  const packed = fc.tuple(
    fc.constantFrom<DType>("e2m1", "int4"),
    shape.map((sizes) => sizes.map((n) => 2 * n)),
  );
  const unrestricted = fc.tuple(fc.constantFrom<DType>(...ELEMENTS), shape);
  return fc
    .tuple(fc.oneof({ weight: 3, arbitrary: unrestricted }, packed), fc.nat())
    .map(([[dtype, sizes], seed]) => {
      const codes = words(seed, elementCount(sizes)).map((word) =>
        storageBits(dtype) === 4 ? word & 15 : word,
      );
      return { x: fromCodes(dtype, sizes, codes) };
    });
}

export const transposeOperation: Operation<TransposeCase> = {
  arbitrary: transposeCase(),
  run: (backend, { x }) => ({ out: download(transpose(upload(backend, x))) }),
  oracle({ x }) {
    const [rows, columns] = x.matrix;
    const codes = x.codes;
    const turned = Array.from(codes, (_, i) => codes[(i % rows) * columns + Math.floor(i / rows)] as number);
    return { out: fromCodes(x.dtype, [columns, rows], turned) };
  },
};

export interface SwapAxesCase {
  readonly x: PlainTensor;
  readonly axis1: number;
  readonly axis2: number;
}

/** Any two axes of tensors of these shapes. */
export function swapAxesCase(shapes: fc.Arbitrary<Shape>): fc.Arbitrary<SwapAxesCase> {
  const element = fc.constantFrom<DType>(...ELEMENTS, "e3m2", "i32");
  return shapes.chain((shape) => {
    const axis = fc.integer({ min: -shape.length, max: shape.length - 1 });
    return fc
      .record({ dtype: element, axis1: axis, axis2: axis, seed: fc.nat() })
      .map(({ dtype, seed, ...axes }) => ({
        x: fromCodes(dtype, shape, words(seed, elementCount(shape))),
        ...axes,
      }));
  });
}

/** Shapes of one to five dimensions; the last is sometimes a multiple of 16 bytes. */
const boxes: fc.Arbitrary<Shape> = fc
  .tuple(
    fc.array(fc.oneof(fc.integer({ min: 1, max: 6 }), fc.constantFrom(0, 1, 9, 17)), { maxLength: 4 }),
    fc.constantFrom(1, 2, 3, 4, 7, 8, 16, 20, 32, 64),
  )
  .map(([outer, last]) => [...outer, last]);

export const swapAxesOperation: Operation<SwapAxesCase> = {
  arbitrary: swapAxesCase(boxes),
  run: (backend, { x, axis1, axis2 }) => ({ out: download(swapAxes(upload(backend, x), axis1, axis2)) }),
  oracle({ x, axis1, axis2 }) {
    const { elements, shape } = oracle.swapAxes(x.codes, x.shape, axis1, axis2);
    return { out: fromCodes(x.dtype, shape, elements) };
  },
};

export interface RelayoutCase {
  readonly spec: QuantizeSpec;
  /** The shape of the quantized tensor. */
  readonly shape: Shape;
  readonly direction: Direction;
  readonly from: ScaleLayout;
  readonly to: ScaleLayout;
  /** The scales in logical layout. */
  readonly scales: PlainTensor;
}

function relayoutCase(): fc.Arbitrary<RelayoutCase> {
  return quantizeSpec().chain((spec) =>
    fc
      .record({
        shape: anyRows(BLOCK_FORMATS[spec.quantizer].multiple, drawnBlock(spec.tile), 2 ** 16),
        direction: fc.constantFrom(...DIRECTIONS),
        from: scaleLayout(spec),
        to: scaleLayout(spec),
        seed: fc.nat(),
      })
      .map(({ seed, ...rest }) => {
        const { scaleType, scaleShape } = copyGeometry(spec, asMatrix(rest.shape), rest.direction, "logical");
        const scales = fromCodes(scaleType, scaleShape, words(seed, elementCount(scaleShape)));
        return { ...rest, spec, scales };
      }),
  );
}

export const relayoutOperation: Operation<RelayoutCase> = {
  arbitrary: relayoutCase(),
  run(backend, { spec, shape, direction, from, to, scales }) {
    const { dataType, dataShape } = copyGeometry(spec, asMatrix(shape), direction, from);
    const data = fromCodes(dataType, dataShape, new Uint8Array(elementCount(dataShape)));
    const scaleInv = layOutScales(scales, spec, shape, direction, from);
    const t = uploadQuantized(backend, spec, shape, direction, from, { data, scaleInv });
    return { scaleInv: download(relayoutScales(t, direction, to)) };
  },
  oracle: ({ spec, shape, direction, to, scales }) => ({
    scaleInv: layOutScales(scales, spec, shape, direction, to),
  }),
};

function layOutScales(
  scales: PlainTensor,
  spec: QuantizeSpec,
  shape: Shape,
  direction: Direction,
  layout: ScaleLayout,
): PlainTensor {
  const { logicalScale } = copyGeometry(spec, asMatrix(shape), direction, "logical");
  const { values } = layOut(
    { values: Array.from(scales.codes), shape: logicalScale },
    spec,
    direction,
    layout,
  );
  return scaleTensor(values, spec, asMatrix(shape), direction, layout);
}
