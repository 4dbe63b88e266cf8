/**
 * Inputs of realistic sizes, generated from a drawn seed, with special values planted. They reach the tiled paths of
 * GPU kernels.
 */
import * as fc from "fast-check";
import type { ActivationName } from "../../../src/backends/ops.js";
import { ACTIVATION } from "../../../src/formats/contract.gen.js";
import { RHT_SIGNS } from "../../../src/ops/quantize/hadamard.js";
import { asMatrix, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import { format, overflow, randomSource, rounding } from "../../arbitraries/formats.js";
import { wideMatrix } from "../../arbitraries/matrices.js";
import { words } from "../../arbitraries/random.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import type { Inputs } from "../../laws/run-options.js";
import { dropoutCase } from "../../operations/elementwise/dropout.js";
import { operatorCases } from "../../operations/elementwise/operators.js";
import { copySliceCase } from "../../operations/layout/copy-slice.js";
import { swapAxesCase } from "../../operations/layout/layout.js";
import { activationQuantizeCase } from "../../operations/quantize/activation-quantize.js";
import { biasGradQuantizeCase } from "../../operations/quantize/bias-grad-quantize.js";
import { dequantizeCase } from "../../operations/quantize/dequantize.js";
import { normQuantizeCase } from "../../operations/quantize/norm-quantize.js";
import { quantizeCase, type Shapes } from "../../operations/quantize/quantize.js";
import {
  combineRowsCase,
  rowDotsCase,
  rowIdMapCase,
  takeRowsCase,
} from "../../operations/rows/expert-rows.js";
import { gatherBackwardCase, gatherCase, gatherSizes } from "../../operations/rows/gather.js";
import { parameters } from "../../operations/rows/norm.js";
import { softmaxBackwardCase, softmaxCase } from "../../operations/rows/softmax.js";
import { topkCase } from "../../operations/rows/topk.js";
import { updateScalesCase } from "../../operations/update/delayed-scaling.js";
import { adamwCase, sgdCase } from "../../operations/update/optimizer.js";
import { PlainTensor } from "../../values/plain.js";

/** The maximum of elements of one input. */
const MAX_ELEMENTS = 2 ** 20;

/** Shapes of at most `maxElements` elements: square and aligned to tiles, ragged, tall, or wide. */
export function largeShapes(maxElements = MAX_ELEMENTS): Shapes {
  return (multiple) => {
    const roundedDown = (size: number): number => Math.max(multiple, size - (size % multiple));
    const alignedSizes = fc.constantFrom(128, 256, 384, 512, 1024).map(roundedDown);
    const raggedSizes = fc.integer({ min: 1, max: 1100 }).map(roundedDown);
    const thin = fc.integer({ min: 1, max: 8 }).map((size) => size * multiple);
    const longSizes = fc.integer({ min: 1000, max: 20_000 }).map(roundedDown);
    return fc
      .oneof(
        fc.tuple(alignedSizes, alignedSizes),
        fc.tuple(raggedSizes, raggedSizes),
        fc.tuple(thin, longSizes),
        fc.tuple(longSizes, thin),
        fc.tuple(alignedSizes, raggedSizes),
      )
      .map(([rows, columns]) => [Math.min(rows, roundedDown(Math.floor(maxElements / columns))), columns]);
  };
}

const shapes = largeShapes();
const anyShape = shapes(1, 1);
/** Smaller shapes for optimizer steps, which have many tensors. */
const stepShape = largeShapes(2 ** 17)(1, 1);
const kinds = fc.constantFrom(...(Object.keys(ACTIVATION) as ActivationName[]));

/** A large tensor of the given type, or of any wide type. */
export function largeTensor(shape: Shape, dtype?: WideDType): fc.Arbitrary<PlainTensor<WideDType>> {
  const type = dtype ? fc.constant(dtype) : wideType();
  return type.chain((chosenType) => wideMatrix({ dtype: chosenType, shape, block: 32, max: 448 }));
}

/** Shapes with an even number of columns, and the shape of one half. */
const halves = anyShape.map(([rows = 1, columns = 1]) => ({
  half: [rows, columns],
  whole: [rows, 2 * columns],
}));

/** Shapes of attention heads, and arbitrary shapes of four dimensions. */
const heads: fc.Arbitrary<Shape> = fc.oneof(
  fc.constantFrom([2, 128, 8, 64], [4, 33, 12, 80], [3, 100, 5, 7], [130, 33, 65], [2, 64, 1, 3, 40]),
  anyShape,
);

/** Shapes of attention scores with several heads, and of rows that exceed shared memory. */
const matrices: fc.Arbitrary<Shape> = fc.oneof(
  fc.constantFrom([2, 3, 64, 96], [4, 100, 33], [2, 40, 1500], [5, 2049], [2, 30_000], [1, 60_000]),
  anyShape,
);

/** An f32 for each row. */
export function row(shape: Shape) {
  return wideTensor([asMatrix(shape)[0]], { dtype: "f32" });
}

/** Logits and targets; some of the targets are ignored. */
export function losses(shape: Shape) {
  const [rows, classes] = asMatrix(shape);
  return fc
    .record({
      logits: largeTensor(shape),
      smoothing: fc.constantFrom(0, 0.1),
      ignore: fc.constant(-100),
      seed: fc.nat(),
    })
    .map(({ seed, ...rest }) => ({
      ...rest,
      targets: new PlainTensor(
        "i32",
        [rows],
        Int32Array.from(words(seed, rows), (bits) => (bits % 16 === 0 ? -100 : bits % classes)),
      ),
    }));
}

/** Ids of which some lie outside of the table and many are equal. */
export function manyIds(count: number, vocabulary: number): fc.Arbitrary<PlainTensor<"i32">> {
  return fc.nat().map((seed) => {
    const draws = words(seed, count);
    const ids = Int32Array.from(draws, (bits) =>
      bits % 4 === 0 ? (bits % 64) % 5 : bits % (vocabulary + 1),
    );
    return new PlainTensor("i32", [count], ids);
  });
}

/** Shapes of a table, and numbers of ids. */
const tables = fc
  .tuple(anyShape, fc.oneof(fc.integer({ min: 1, max: 5000 }), fc.constantFrom(2048, 2049)))
  .map(([shape, count]) => {
    const [vocabulary, columns] = asMatrix(shape);
    return { vocabulary, columns, count: Math.min(count, Math.ceil(MAX_ELEMENTS / columns)) };
  });

/** Indices of routers and larger ones. */
const gathers = gatherSizes(fc.constantFrom(1, 64, 257, 700), 16);

/** Rows of experts of models. */
const expertSizes = {
  tokens: fc.constantFrom(1, 257, 1000),
  experts: fc.constantFrom(1, 8, 64),
  columns: fc.constantFrom(8, 129, 256),
};

/** Inputs of `encode`. Rows have an even length, because some formats store two codes per byte. */
const toEncode = fc.tuple(anyShape, format()).chain(([shape, to]) => {
  const [rows, columns] = asMatrix(shape);
  return fc.record({
    x: largeTensor([rows, columns + (columns % 2)]),
    format: fc.constant(to),
    rounding: rounding(),
    overflow: overflow(),
    random: randomSource(),
    scale: fc.constantFrom(1, 1, 0.3, 2 ** -20),
  });
});

/** Large inputs by operation. An operation without an entry is not tested with large inputs by the laws. */
export const LARGE_INPUTS: Inputs = {
  encode: toEncode,
  hadamard: fc
    .tuple(shapes(16, 16), fc.constantFrom(0, RHT_SIGNS))
    .chain(([shape, signs]) =>
      largeTensor(shape, "bf16").map((x) => ({ x: x as PlainTensor<"bf16">, signs })),
    ),
  amax: anyShape.chain((shape) => largeTensor(shape)).map((x) => ({ x })),
  quantize: quantizeCase(undefined, shapes),
  dequantize: dequantizeCase(shapes),
  transpose: fc.tuple(anyShape, fc.constantFrom("u8", "u16", "u32"), fc.nat()).map(([shape, dtype, seed]) => {
    const count = (shape[0] ?? 1) * (shape[1] ?? 1);
    const array = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array }[dtype];
    return { x: new PlainTensor(dtype, shape, array.from(words(seed, count))) };
  }),
  swapAxes: swapAxesCase(heads),
  copySlice: copySliceCase(heads),
  softmax: matrices.chain((shape) => softmaxCase(shape, largeTensor)),
  softmaxBackward: matrices.chain((shape) => softmaxBackwardCase(shape, largeTensor)),
  ...operatorCases(anyShape, largeTensor),
  cumsum: anyShape.chain((shape) => fc.record({ x: largeTensor(shape), reverse: fc.boolean() })),
  dropout: anyShape.chain((shape) => dropoutCase(shape, largeTensor)),
  topk: topkCase(fc.constantFrom(1, 257, 1000), fc.constantFrom(1, 8, 33)),
  rowIdMap: rowIdMapCase(expertSizes),
  takeRows: takeRowsCase(expertSizes),
  combineRows: combineRowsCase(expertSizes),
  rowDots: rowDotsCase(expertSizes),
  gather: gatherCase(gathers),
  gatherBackward: gatherBackwardCase(gathers),
  activation: anyShape.chain((shape) =>
    fc.record({ x: largeTensor(shape), kind: kinds, outDtype: wideType() }),
  ),
  activationBackward: anyShape.chain((shape) =>
    fc.record({ x: largeTensor(shape), grad: largeTensor(shape), kind: kinds, outDtype: wideType() }),
  ),
  gated: halves.chain(({ whole: shape }) =>
    fc.record({ x: largeTensor(shape), kind: kinds, outDtype: wideType() }),
  ),
  gatedBackward: halves.chain(({ half, whole: fullShape }) =>
    fc.record({ x: largeTensor(fullShape), grad: largeTensor(half), kind: kinds, outDtype: wideType() }),
  ),
  activationQuantize: activationQuantizeCase(["fp8-delayed", "mxfp8", "fp8-current"], shapes),
  biasGradQuantize: biasGradQuantizeCase(["fp8-delayed", "fp8-current", "fp8-block", "mxfp8"], shapes),
  normQuantize: normQuantizeCase(["fp8-delayed", "fp8-current"], shapes),
  norm: anyShape.chain((shape) =>
    fc
      .tuple(
        fc.record({ x: largeTensor(shape), eps: fc.constant(1e-5), outDtype: wideType() }),
        parameters(shape),
      )
      .map(([input, choices]) => ({ ...input, ...choices })),
  ),
  normBackward: anyShape.chain((shape) =>
    fc
      .tuple(
        fc.record({ grad: largeTensor(shape), x: largeTensor(shape), rstd: row(shape) }),
        parameters(shape),
        row(shape),
      )
      .map(([input, { beta, ...choices }, mean]) => ({ ...input, ...choices, ...(beta ? { mean } : {}) })),
  ),
  sgd: stepShape.chain(sgdCase),
  adamw: stepShape.chain(adamwCase),
  columnSum: anyShape.chain((shape) => fc.record({ x: largeTensor(shape), outDtype: wideType() })),
  mse: anyShape.chain((shape) => fc.record({ x: largeTensor(shape), target: largeTensor(shape) })),
  mseBackward: anyShape.chain((shape) =>
    fc.record({ x: largeTensor(shape), target: largeTensor(shape), grad: row(shape) }),
  ),
  embedding: tables.chain(({ vocabulary, columns, count }) =>
    fc.record({
      table: largeTensor([vocabulary, columns]),
      ids: manyIds(count, vocabulary),
      outDtype: wideType(),
    }),
  ),
  embeddingBackward: tables.chain(({ vocabulary, columns, count }) =>
    fc.record({
      grad: largeTensor([count, columns]),
      ids: manyIds(count, vocabulary),
      vocabulary: fc.constant(vocabulary),
      outDtype: wideType(),
    }),
  ),
  gradNorm: fc.record({
    grads: fc.array(
      anyShape.chain((shape) => largeTensor(shape)),
      { minLength: 1, maxLength: 2 },
    ),
    maxNorm: fc.constant(1),
  }),
  updateScales: updateScalesCase(
    fc.tuple(fc.constantFrom(1, 127, 128, 129, 1024, 1031), fc.constantFrom(1, 33, 300)),
  ),
  crossEntropy: anyShape.chain(losses),
  crossEntropyBackward: anyShape.chain((shape) =>
    fc
      .tuple(losses(shape), fc.record({ grad: row(shape), maximum: row(shape), total: row(shape) }))
      .map(([input, statistics]) => ({ ...input, ...statistics })),
  ),
};
