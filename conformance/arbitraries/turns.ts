/**
 * Inputs of the sizes at which a loop of a kernel takes a second turn that smaller ones never take: as many rows, tiles or
 * matrices as a grid has places for, and more. scripts/turns says which loops a run has reached.
 */
import * as fc from "fast-check";
import type { ActivationName } from "../../src/backends/ops.js";
import type { Shape } from "../../src/tensor/shape.js";
import { parameters } from "../harness/operations/norm.js";
import { normQuantizeCase } from "../harness/operations/norm-quantize.js";
import type { Cases, OperationName } from "../harness/operations.js";
import { PlainTensor } from "../harness/plain.js";
import { large, losses, manyIds, row } from "./large.js";
import { words } from "./random.js";
import { wideType } from "./wide.js";

/** Inputs of each operation, each to be drawn a few times. */
export type Turns = { readonly [K in OperationName]?: readonly fc.Arbitrary<Cases[K]>[] };

/** The most blocks of a grid along y, and of threads of the element-wise kernels that lie along a row of 129 and more. */
const GRID = 65_535;
const ROW_THREADS = 256;
const SHORTEST_ROW = ROW_THREADS / 2 + 1;
/** Numbers from which curves come from tables. */
const TABLED = 2 ** 22;
const CURVES: readonly ActivationName[] = ["gelu", "silu", "qgelu", "sigmoid", "qgelu"];

/** Rows of four, two and one to a block, and too long for its memory; many rows; columns that are no whole packs. */
const NORMED: readonly Shape[] = [
  [20_000, 64],
  [6000, 520],
  [300, 8200],
  [150, 12_296],
  [140, 40_008],
  [3, 120_008],
  [9000, 33],
];

const outDtype = wideType();

function normed(shape: Shape) {
  return fc
    .tuple(fc.record({ x: large(shape), epsilon: fc.constant(1e-5), outDtype }), parameters(shape))
    .map(([input, given]) => ({ ...input, ...given }));
}

/** Gradients of rows of one type, which is what is worked in shared memory. */
function normGradients(shape: Shape) {
  return wideType().chain((dtype) =>
    fc
      .tuple(
        fc.record({ grad: large(shape, dtype), x: large(shape, dtype), rstd: row(shape) }),
        parameters(shape),
        row(shape),
      )
      .map(([input, { beta, ...given }, mean]) => ({ ...input, ...given, ...(beta ? { mean } : {}) })),
  );
}

/** For a GPU of so many multiprocessors. */
export function turnsFor(multiprocessors: number): Turns {
  /** Numbers that a grid of so many threads on a multiprocessor takes in one turn, and a few more. */
  const beyond = (each: number): number => multiprocessors * each + 8 * 101 + 5;
  const manyRows: Shape = [GRID + 5, SHORTEST_ROW];
  const tabled = Math.max(TABLED, beyond(4 * 1024 * 8));
  const flat: Shape = [tabled - (tabled % 8) + 5];
  const rows = Math.ceil(tabled / 1040);
  const wide = { half: [rows, 1040], whole: [rows, 2 * 1040] };
  return {
    amax: [
      large([beyond(8 * 256 * 4 * 8)], "bf16").map((x) => ({ x })),
      large([beyond(8 * 256 * 4 * 4)], "f32").map((x) => ({ x })),
    ],
    activation: CURVES.map((kind) =>
      fc.record({ x: large(flat, "bf16"), kind: fc.constant(kind), outDtype }),
    ),
    activationBackward: CURVES.map((kind) =>
      fc.record({
        x: large(flat, "bf16"),
        grad: large(flat),
        kind: fc.constant(kind),
        outDtype,
      }),
    ),
    gated: [
      fc.record({ x: large(wide.whole, "bf16"), kind: fc.constantFrom(...CURVES), outDtype }),
      fc.record({ x: large([GRID + 5, 2 * SHORTEST_ROW]), kind: fc.constant("relu"), outDtype }),
    ],
    gatedBackward: [
      fc.record({
        x: large(wide.whole, "bf16"),
        grad: large(wide.half),
        kind: fc.constantFrom(...CURVES),
        outDtype,
      }),
    ],
    columnSum: [
      [40_000, 3],
      [40_000, 8],
      [70_000, 16],
      [32 * GRID + 33, 1],
    ].map((shape) => fc.record({ x: large(shape), outDtype })),
    norm: NORMED.map(normed),
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
    mseBackward: [fc.record({ x: large(manyRows), target: large(manyRows), grad: row(manyRows) })],
    crossEntropyBackward: [
      fc
        .tuple(
          losses(manyRows),
          fc.record({ grad: row(manyRows), maximum: row(manyRows), total: row(manyRows) }),
        )
        .map(([input, saved]) => ({ ...input, ...saved })),
    ],
    embedding: [fc.record({ table: large([50, SHORTEST_ROW]), ids: manyIds(GRID + 5, 50), outDtype })],
    embeddingBackward: [
      fc.record({
        grad: large([3000, 1]),
        ids: manyIds(3000, 8 * 32 * GRID + 700),
        vocabulary: fc.constant(8 * 32 * GRID + 700),
        outDtype: fc.constant("bf16"),
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
    encode: (["e4m3", "bf16", "e2m1", "e3m2"] as const).map((format) =>
      fc.record({
        x: large([1025, 1032]),
        format: fc.constant(format),
        rounding: fc.constant("stochastic"),
        overflow: fc.constant("saturate"),
        random: fc.record({ seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), offset: fc.constant(3n) }),
        scale: fc.constant(1),
      }),
    ),
    gradNorm: [
      fc.record({
        grads: fc.array(large([2, 3]), { minLength: 1100, maxLength: 1100 }),
        maxNorm: fc.constant(1),
      }),
      fc.record({ grads: large([2600, 2047]).map((x) => [x]), maxNorm: fc.constant(1) }),
    ],
  };
}
