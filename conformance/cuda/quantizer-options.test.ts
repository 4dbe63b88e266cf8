/**
 * Any values of three options of a quantizer together on a GPU, and the same told to do nothing, all of them on matrices of one
 * shape in one process; then matrices of so many tiles that a block of threads takes a second one, the last of them ragged.
 */
import * as fc from "fast-check";
import { describe, it } from "vitest";
import type { Backend } from "../../src/backends/backend.js";
import { cudaDevices } from "../../src/backends/open.js";
import { BLOCK_FORMATS, tileSize } from "../../src/formats/block.js";
import { factsOf } from "../../src/formats/derive.js";
import { RHT_SIGNS } from "../../src/ops/hadamard.js";
import { makeSpec } from "../../src/quantizers/quantizer.js";
import type { QuantizeSpec } from "../../src/tensor/quantized.js";
import type { Shape, WideDType } from "../../src/tensor/shape.js";
import { wideMatrix } from "../arbitraries/matrices.js";
import { nameOf, type Told, toldTogether } from "../arbitraries/quantizations.js";
import { QUANTIZERS } from "../arbitraries/specs.js";
import { describeOnGpu, SEED, useGpu } from "../harness/gpu.js";
import { assertSameAnswer } from "../harness/laws.js";
import type { QuantizeCase } from "../harness/operations/quantize.js";
import { backendSubject } from "../harness/operations.js";
import type { PlainTensor } from "../harness/plain.js";

/** More elements than 2^19, no multiple of any tile; blocks begin and end at both ends. */
const SHAPES: Readonly<Record<number, Shape>> = { 1: [1029, 517], 16: [1040, 528], 32: [1056, 544] };

const drawn = new Map<string, PlainTensor<WideDType>>();

/** A matrix with plants for the blocks of a spec, made once. */
function matrixFor(spec: QuantizeSpec, dtype: WideDType, shape: Shape): PlainTensor<WideDType> {
  const [, block] = tileSize(spec.tile);
  const { max } = factsOf(spec.format);
  const key = JSON.stringify([dtype, shape, block, max]);
  const known = drawn.get(key);
  if (known) return known;
  const [made] = fc.sample(wideMatrix({ dtype, shape, block, max }), { numRuns: 1, seed: SEED + 3 });
  drawn.clear();
  drawn.set(key, made as PlainTensor<WideDType>);
  return made as PlainTensor<WideDType>;
}

const BOTH = { rowwise: true, columnwise: true };
const COLUMNWISE = { rowwise: false, columnwise: true };
const ROWWISE = { rowwise: true, columnwise: false };
const TRANSFORMED = { rht: true, rhtSigns: RHT_SIGNS };
const nvfp4 = (fields: Partial<QuantizeSpec>): QuantizeSpec => makeSpec("nvfp4", fields);

/** What goes over matrices of many tiles, or clears many scales. */
const MANY: readonly Told[] = (
  [
    [nvfp4({}), BOTH, "logical", "bf16", undefined],
    [nvfp4({ tile: "16x16" }), BOTH, "swizzled", "bf16", undefined],
    [nvfp4({ tile: "16x16" }), COLUMNWISE, "padded", "f16", undefined],
    [nvfp4(TRANSFORMED), BOTH, "padded", "bf16", 0],
    [nvfp4({ ...TRANSFORMED, stochastic: true }), COLUMNWISE, "swizzled", "bf16", undefined],
    [nvfp4({ stochastic: true }), BOTH, "logical", "f32", undefined],
    [nvfp4({ stochastic: true }), ROWWISE, "swizzled", "f16", undefined],
    [nvfp4({ fourOverSix: "mse" }), BOTH, "padded", "bf16", undefined],
    [makeSpec("mxfp8", {}), BOTH, "swizzled", "bf16", 0],
    [makeSpec("mxfp8", {}), BOTH, "padded", "bf16", 1],
    [makeSpec("mxfp4", { tile: "32x32" }), BOTH, "padded", "f32", 0],
    [makeSpec("fp8-block", {}), BOTH, "padded", "bf16", 0],
  ] as const
).map(([spec, usage, scaleLayout, dtype, noop]) => ({
  spec,
  usage,
  scaleLayout,
  dtype,
  noop,
  records: true,
}));

/** Ragged against tiles of 128 rows by 64 columns, of which a GPU works at most 12 a multiprocessor at once. */
function manyTiles(multiprocessors: number): Shape {
  const across = Math.ceil(Math.sqrt(12.5 * multiprocessors));
  return [128 * across + 32, 64 * across + 32];
}

describeOnGpu("quantizers on a GPU", () => {
  const { gpu, reference } = useGpu();

  const compare = ({ dtype, ...how }: Told, shape: Shape): void => {
    const input: QuantizeCase = {
      ...how,
      x: matrixFor(how.spec, dtype, shape),
      random: { seed: 0x1234_5678_9abc_def0n, offset: 2n ** 40n + 3n },
      scale: 0.3,
    };
    const [ours, theirs] = [gpu(), reference()].map((backend: Backend) =>
      backendSubject(backend).quantize(input),
    );
    assertSameAnswer(ours as never, theirs as never);
  };

  describe.each(QUANTIZERS)("%s with any three options", (name) => {
    const shape = SHAPES[BLOCK_FORMATS[name].multiple] as Shape;
    for (const told of toldTogether(name, 3, [undefined]))
      it(nameOf(told), () => {
        compare(told, shape);
        compare({ ...told, noop: 1 }, shape);
      });
  });

  describe("of more tiles than a GPU works at once", () => {
    const shape = manyTiles(cudaDevices()[0]?.multiprocessors ?? 1);
    for (const told of MANY) it(`${nameOf(told)} [${shape}]`, () => compare(told, shape));
  });
});
