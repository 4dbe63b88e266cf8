/**
 * Inputs large enough that kernel loops run a second iteration: more rows, tiles or matrices than the grid has blocks
 * for. Some sizes leave a remainder that a separate path processes. All elements are ordinary numbers, so that an error
 * at any position changes the result. scripts/turns reports which loops a run has reached.
 */
import * as fc from "fast-check";
import type { ActivationName } from "../../../src/backends/ops.js";
import { BLOCK_FORMATS, type BlockFormatName } from "../../../src/formats/block.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { wideType } from "../../arbitraries/wide.js";
import { decodeCase } from "../../operations/cast/decode.js";
import type { Cases, OperationName } from "../../operations/operations.js";
import { biasGradQuantizeCase } from "../../operations/quantize/bias-grad-quantize.js";
import { dequantizeCase } from "../../operations/quantize/dequantize.js";
import { normQuantizeCase } from "../../operations/quantize/norm-quantize.js";
import { parameters } from "../../operations/rows/norm.js";
import { PlainTensor } from "../../values/plain.js";
import { largeTensor, losses, manyIds, row } from "./large.js";
import { ordinary } from "./ordinary.js";

/** The arbitraries of each operation. A few inputs are drawn from each. */
export type Turns = { readonly [K in OperationName]?: readonly fc.Arbitrary<Cases[K]>[] };

/**
 * The maximum of blocks along y of a grid, and of threads of an elementwise kernel along a row of 129 or more elements.
 */
const GRID = 65_535;
const ROW_THREADS = 256;
const SHORTEST_ROW = ROW_THREADS / 2 + 1;
/** The number of elements from which kernels read activations from a table. */
const TABLED = 2 ** 22;
const CURVES: readonly ActivationName[] = ["gelu", "silu", "qgelu", "sigmoid", "qgelu"];

/**
 * Shapes of norms: four, two or one rows per block, rows too long for shared memory, many rows, and rows that are not
 * whole packs.
 */
const NORMED: readonly Shape[] = [
  [20_000, 64],
  [6000, 520],
  [300, 8200],
  [150, 12_296],
  [140, 40_008],
  [3, 120_008],
  [9000, 33],
];

/**
 * Shapes of gradients whose columns are summed: whole tiles and chunks, a last chunk that ends inside a tile, and rows
 * that are not whole vectors.
 */
const SUMMED: readonly Shape[] = [
  [1024, 512],
  [1056, 264],
  [1000, 200],
  [129, 1026],
  [1031, 131],
];

const outDtype = wideType();
const f32 = fc.constant("f32" as const);

function normCases(shape: Shape, dtype?: WideDType) {
  return fc
    .tuple(fc.record({ x: ordinary(shape, dtype), eps: fc.constant(1e-5), outDtype }), parameters(shape))
    .map(([input, choices]) => ({ ...input, ...choices }));
}

/** Columns of f32 rows: on sm_90 the ring buffer then has the given number of slots of the given number of rows. */
const RINGS = [
  [13, 2, 2056],
  [6, 1, 8200],
  [2, 1, 20_008],
] as const;

/** Shapes of masked scores: the causal mask ends at every position within eight elements, for every team size. */
const MASKED: readonly Shape[] = [64, 1032, 2056, 4104, 8200, 16_392, 28_000].map((columns) => [
  2,
  9,
  columns,
]);

/**
 * Formats that the conversion kernel rounds itself, and the maximum number of elements that a block of threads takes
 * per iteration.
 */
const ROUNDED = ["e4m3", "e5m2", "e2m1", "bf16", "f16"] as const;
const EIGHTS = 256;
const MAX_EIGHTS = 4;

const random = fc.record({ seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), offset: fc.constant(3n) });

/** Even element counts whose last elements are less than eight, for each iteration of a block. */
const RESTS = Array.from({ length: MAX_EIGHTS }, (_, iteration) => 8 * (EIGHTS * iteration + 3) + 6);

/** The quantizers that accept rows of any length. */
const RAGGED = (Object.keys(BLOCK_FORMATS) as BlockFormatName[]).filter(
  (name) => BLOCK_FORMATS[name].multiple === 1,
);

/** Shapes whose rows are not whole vectors, with more elements than a warp or a tile takes. */
const RAGGED_SHAPES: readonly Shape[] = [
  [43, 1501],
  [1501, 43],
  [203, 2051],
  [1029, 1031],
];

/** Inputs of norm gradients in which all rows have one type; the kernel processes these in shared memory. */
function normGradients(shape: Shape) {
  return wideType().chain((dtype) =>
    fc
      .tuple(
        fc.record({ grad: ordinary(shape, dtype), x: ordinary(shape, dtype), rstd: row(shape) }),
        parameters(shape),
        row(shape),
      )
      .map(([input, { beta, ...choices }, mean]) => ({ ...input, ...choices, ...(beta ? { mean } : {}) })),
  );
}

/** Inputs for a GPU with that many multiprocessors. */
export function turnsFor(multiprocessors: number): Turns {
  /** An element count slightly above what a grid with `waves` threads per multiprocessor takes in one iteration. */
  const elementsBeyond = (waves: number): number => multiprocessors * waves + 8 * 101 + 5;
  const manyRows: Shape = [GRID + 5, SHORTEST_ROW];
  const tabled = Math.max(TABLED, elementsBeyond(4 * 1024 * 8));
  const flat: Shape = [tabled - (tabled % 8) + 5];
  const rows = Math.ceil(tabled / 1040);
  const wide = { half: [rows, 1040], whole: [rows, 2 * 1040] };
  return {
    amax: [
      largeTensor([elementsBeyond(8 * 256 * 4 * 8)], "bf16").map((x) => ({ x })),
      largeTensor([elementsBeyond(8 * 256 * 4 * 4)], "f32").map((x) => ({ x })),
    ],
    activation: CURVES.map((kind) =>
      fc.record({ x: largeTensor(flat, "bf16"), kind: fc.constant(kind), outDtype }),
    ),
    activationBackward: CURVES.map((kind) =>
      fc.record({
        x: largeTensor(flat, "bf16"),
        grad: largeTensor(flat),
        kind: fc.constant(kind),
        outDtype,
      }),
    ),
    gated: [
      fc.record({ x: largeTensor(wide.whole, "bf16"), kind: fc.constantFrom(...CURVES), outDtype }),
      fc.record({ x: largeTensor([GRID + 5, 2 * SHORTEST_ROW]), kind: fc.constant("relu"), outDtype }),
    ],
    gatedBackward: [
      fc.record({
        x: largeTensor(wide.whole, "bf16"),
        grad: largeTensor(wide.half),
        kind: fc.constantFrom(...CURVES),
        outDtype,
      }),
    ],
    columnSum: [
      [40_000, 3],
      [40_000, 8],
      [70_000, 16],
      [32 * GRID + 33, 1],
    ].map((shape) => fc.record({ x: ordinary(shape), outDtype: f32 })),
    biasGradQuantize: [
      ...SUMMED.flatMap((shape) =>
        (["fp8-delayed", "fp8-current", "fp8-block"] as const).map((name) =>
          biasGradQuantizeCase([name], () => fc.constant(shape), ordinary),
        ),
      ),
      ...[1, 8].map((columns) =>
        biasGradQuantizeCase(["fp8-current"], () => fc.constant([32 * GRID + 33, columns]), ordinary),
      ),
    ],
    norm: [
      ...NORMED.map((shape) => normCases(shape)),
      ...RINGS.map(([slots, group, columns]) =>
        normCases([multiprocessors * (slots + 1) * group + (multiprocessors >> 1), columns], "f32"),
      ),
    ],
    normQuantize: NORMED.map((shape) => normQuantizeCase(["fp8-delayed"], () => fc.constant(shape))),
    normBackward: [
      [20_000, 64],
      [9000, 264],
      [40, 4104],
      [1100, 8200],
      [3, 20_488],
      [300, 32_768],
      [40, 32_776],
      [9000, 33],
    ].map(normGradients),
    mseBackward: [
      fc.record({ x: largeTensor(manyRows), target: largeTensor(manyRows), grad: row(manyRows) }),
    ],
    crossEntropyBackward: [
      fc
        .tuple(
          losses(manyRows),
          fc.record({ grad: row(manyRows), maximum: row(manyRows), total: row(manyRows) }),
        )
        .map(([input, statistics]) => ({ ...input, ...statistics })),
    ],
    embedding: [fc.record({ table: largeTensor([50, SHORTEST_ROW]), ids: manyIds(GRID + 5, 50), outDtype })],
    embeddingBackward: [
      fc.record({
        grad: largeTensor([3000, 1]),
        ids: manyIds(3000, 8 * 32 * GRID + 700),
        vocabulary: fc.constant(8 * 32 * GRID + 700),
        outDtype: fc.constant("bf16"),
      }),
      fc.record({
        grad: ordinary([40_000, 3]),
        ids: manyIds(40_000, 3000),
        vocabulary: fc.constant(3000),
        outDtype: f32,
      }),
    ],
    swapAxes: (["u8", "bf16", "f32"] as const).map((dtype) =>
      fc.nat().map((seed) => {
        const shape = [GRID + 5, 3, 5];
        const bits = words(seed, 15 * (GRID + 5));
        const array = { u8: Uint8Array, bf16: Uint16Array, f32: Float32Array }[dtype];
        return { x: new PlainTensor(dtype, shape, array.from(bits) as never), axis1: 1, axis2: 2 };
      }),
    ),
    encode: [
      ...(["e4m3", "bf16", "e2m1", "e3m2"] as const).map((format) =>
        fc.record({
          x: ordinary([1025, 1032], "f32"),
          format: fc.constant(format),
          rounding: fc.constant("stochastic" as const),
          overflow: fc.constant("saturate" as const),
          random,
          scale: fc.constant(0.75),
        }),
      ),
      ...RESTS.flatMap((count) =>
        ROUNDED.map((format) =>
          fc.record({
            x: ordinary([count]),
            format: fc.constant(format),
            rounding: fc.constant("tiesToEven" as const),
            overflow: fc.constant("saturate" as const),
            random,
            scale: fc.constant(0.75),
          }),
        ),
      ),
    ],
    decode: RESTS.flatMap((count) =>
      ROUNDED.map((format) => decodeCase(fc.constant(format), fc.constant(count))),
    ),
    dequantize: RAGGED.flatMap((name) =>
      RAGGED_SHAPES.map((shape) => dequantizeCase(() => fc.constant(shape), [name])),
    ),
    softmax: MASKED.map((shape) =>
      fc.record({ x: ordinary(shape), causal: fc.constant(true), scale: fc.constant(0.125), outDtype }),
    ),
    softmaxBackward: MASKED.flatMap((shape) =>
      (["bf16", "f16", "f32"] as const).map((dtype) =>
        fc.record({
          grad: ordinary(shape, dtype),
          y: ordinary(shape, dtype),
          causal: fc.constant(true),
          scale: fc.constant(0.125),
          outDtype,
        }),
      ),
    ),
    gradNorm: [
      fc.record({
        grads: fc.array(ordinary([2, 3]), { minLength: 1100, maxLength: 1100 }),
        maxNorm: fc.constant(1),
      }),
      fc.record({ grads: ordinary([2600, 2047]).map((x) => [x]), maxNorm: fc.constant(1) }),
    ],
  };
}
