/**
 * Tests of quantizer options on a GPU: every combination of values of three options, also with `noop` set, all on matrices of one
 * shape in one process; then matrices with so many tiles that a thread block processes a second one, with ragged last tiles.
 */
import * as fc from "fast-check";
import { describe, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { cudaDevices } from "../../../../src/backends/open.js";
import { BLOCK_FORMATS } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { RHT_SIGNS } from "../../../../src/ops/quantize/hadamard.js";
import type { QuantizeSpec, ScaleLayout } from "../../../../src/tensor/quantized.js";
import { elementCount, type Shape, type WideDType } from "../../../../src/tensor/shape.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { drawnBlock, wideMatrix } from "../../../arbitraries/matrices.js";
import { narrowed } from "../../../arbitraries/patterns.js";
import { layoutsOf, QUANTIZERS } from "../../../arbitraries/specs.js";
import { assertSameAnswer } from "../../../laws/laws.js";
import { backendSubject } from "../../../operations/operations.js";
import type { QuantizeCase } from "../../../operations/quantize/quantize.js";
import { fromCodes, type PlainTensor } from "../../../values/plain.js";
import { ordinaryBits } from "../../arbitraries/ordinary.js";
import { nameOf, type ToldSpec, toldTogether } from "../../arbitraries/quantizations.js";
import { describeOnGpu, SEED, useGpu } from "./gpu.js";
import { QUANTIZER_GROUPS } from "./groups.js";

/** Shapes with more than 2^19 elements that are not multiples of a tile, so that the last tiles are ragged. */
const SHAPES: Readonly<Record<number, Shape>> = { 1: [1029, 517], 16: [1040, 528], 32: [1056, 544] };

/** The properties of a quantization that its matrix depends on. */
interface MatrixAim {
  readonly dtype: WideDType;
  readonly shape: Shape;
  readonly block: number;
  readonly max: number;
}

/** A matrix from `wideMatrix`, with planted values that are difficult for the blocks of the spec. */
function drawEdgeMatrix(aim: MatrixAim): PlainTensor<WideDType> {
  const [matrix] = fc.sample(wideMatrix(aim), { numRuns: 1, seed: SEED + 3 });
  return matrix as PlainTensor<WideDType>;
}

/**
 * Ordinary numbers and one NaN. The last element is the largest, also after the transform, so an amax that misses it is
 * wrong.
 */
function drawPeakMatrix({ dtype, shape }: MatrixAim): PlainTensor<WideDType> {
  const bits = ordinaryBits(elementCount(shape), SEED);
  bits[Math.floor(bits.length / 3)] = 0x7fc00000;
  bits[bits.length - 1] = 0x44800000;
  return fromCodes(
    dtype,
    shape,
    bits.map((pattern) => narrowed(pattern, dtype)),
  );
}

const matrixCache = new Map<string, PlainTensor<WideDType>>();

/** The matrix for a spec, created once. */
function cachedMatrix(
  spec: QuantizeSpec,
  dtype: WideDType,
  shape: Shape,
  draw: typeof drawEdgeMatrix,
): PlainTensor<WideDType> {
  const block = drawnBlock(spec.tile);
  const { max } = factsOf(spec.format);
  const aim = draw === drawEdgeMatrix ? { dtype, shape, block, max } : { dtype, shape, block: 0, max: 0 };
  const key = JSON.stringify([aim, draw.name]);
  const cachedValue = matrixCache.get(key);
  if (cachedValue) return cachedValue;
  const matrix = draw(aim);
  matrixCache.clear();
  matrixCache.set(key, matrix);
  return matrix;
}

const BOTH_COPIES = { rowwise: true, columnwise: true };
const COLUMNWISE = { rowwise: false, columnwise: true };
const ROWWISE = { rowwise: true, columnwise: false };
const HADAMARD = { rht: true, rhtSigns: RHT_SIGNS };
const nvfp4 = (fields: Partial<QuantizeSpec>): QuantizeSpec => makeSpec("nvfp4", fields);

/** The option combinations whose kernels loop over many tiles, or that clear many padding scales. */
const TILED_OPTIONS: readonly ToldSpec[] = (
  [
    [nvfp4({}), BOTH_COPIES, "logical", "bf16", undefined],
    [nvfp4({ tile: "16x16" }), BOTH_COPIES, "swizzled", "bf16", undefined],
    [nvfp4({ tile: "16x16" }), COLUMNWISE, "padded", "f16", undefined],
    [nvfp4(HADAMARD), BOTH_COPIES, "padded", "bf16", 0],
    [nvfp4({ ...HADAMARD, stochastic: true }), COLUMNWISE, "swizzled", "bf16", undefined],
    [nvfp4({ stochastic: true }), BOTH_COPIES, "logical", "f32", undefined],
    [nvfp4({ stochastic: true }), ROWWISE, "swizzled", "f16", undefined],
    [nvfp4({ fourOverSix: "mse" }), BOTH_COPIES, "padded", "bf16", undefined],
    [makeSpec("mxfp8", {}), BOTH_COPIES, "swizzled", "bf16", 0],
    [makeSpec("mxfp8", {}), BOTH_COPIES, "padded", "bf16", 1],
    [makeSpec("mxfp4", { tile: "32x32" }), BOTH_COPIES, "padded", "f32", 0],
    [makeSpec("fp8-block", {}), BOTH_COPIES, "padded", "bf16", 0],
  ] as const
).map(([spec, usage, scaleLayout, dtype, noop]) => ({
  spec,
  usage,
  scaleLayout,
  dtype,
  noop,
  records: true,
}));

/**
 * A ragged shape with more tiles of 128 rows by 64 columns than a GPU with at most 12 blocks per multiprocessor runs at
 * once.
 */
function manyTiles(multiprocessors: number): readonly [rows: number, columns: number] {
  const tilesPerSide = Math.ceil(Math.sqrt(12.5 * multiprocessors));
  return [128 * tilesPerSide + 32, 64 * tilesPerSide + 32];
}

/** More lines or columns than 16 bits can count. */
const LINE_LIMIT = 2 ** 16;

/** Compares the two backends' quantizations of a matrix of a shape. */
function comparator({ gpu, reference }: ReturnType<typeof useGpu>) {
  return ({ dtype, ...settings }: ToldSpec, shape: Shape, draw = drawEdgeMatrix): void => {
    const input: QuantizeCase = {
      ...settings,
      x: cachedMatrix(settings.spec, dtype, shape, draw),
      random: { seed: 0x1234_5678_9abc_def0n, offset: 2n ** 40n + 3n },
      scale: 0.3,
    };
    const [gpuAnswer, referenceAnswer] = [gpu(), reference()].map((backend: Backend) =>
      backendSubject(backend).quantize(input),
    );
    assertSameAnswer(gpuAnswer as never, referenceAnswer as never);
  };
}

/** Tests every combination of values of three options of a group of quantizers. */
export function describeOptionsOnGpu(group: keyof typeof QUANTIZER_GROUPS): void {
  describeOnGpu(`quantizers of ${group} on a GPU`, () => {
    const compare = comparator(useGpu());

    describe.each(QUANTIZER_GROUPS[group])("%s with any three options", (name) => {
      const shape = SHAPES[BLOCK_FORMATS[name].multiple] as Shape;
      for (const options of toldTogether(name, 3, [undefined]))
        it(nameOf(options), () => {
          compare(options, shape);
          compare({ ...options, noop: 1 }, shape);
        });
    });
  });
}

/** Tests matrices whose sizes make loops run a second iteration. */
export function describeSizesOnGpu(): void {
  describeOnGpu("quantizers on a GPU", () => {
    const compare = comparator(useGpu());

    describe("of more tiles than a GPU runs at once", () => {
      const [rows, columns] = manyTiles(cudaDevices()[0]?.multiprocessors ?? 1);
      for (const options of TILED_OPTIONS) {
        // formats that accept any size get an odd number of lines, so that there is padding to clear
        const extraLines = BLOCK_FORMATS[options.spec.quantizer].multiple === 1 ? 1 : 0;
        const shape = [rows + extraLines, columns + extraLines];
        it(`${nameOf(options)} [${shape}]`, () => compare(options, shape, drawPeakMatrix));
      }
    });

    describe("of rows and columns of more than 65,535 elements", () => {
      for (const name of QUANTIZERS) {
        const { multiple } = BLOCK_FORMATS[name];
        const [shortSide, longSide] = [Math.max(multiple, 3), LINE_LIMIT + 3 * multiple];
        const spec = makeSpec(name, {});
        const scaleLayout = layoutsOf(spec).at(-1) as ScaleLayout;
        for (const dtype of ["bf16", "f32"] as const)
          for (const shape of [
            [shortSide, longSide],
            [longSide, shortSide],
          ] as const) {
            const options = { spec, usage: BOTH_COPIES, scaleLayout, dtype, noop: undefined, records: true };
            it(`${nameOf(options)} [${shape}]`, () => compare(options, shape, drawPeakMatrix));
          }
      }
    });
  });
}
