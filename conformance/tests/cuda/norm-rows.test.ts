/**
 * Norms of any number of rows of any length. The kernels divide rows among blocks depending on both and on the GPU's
 * resources.
 */
import { it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { layerNorm, rmsNorm } from "../../../src/ops/rows/norm.js";
import { Scope } from "../../../src/tensor/scope.js";
import { words } from "../../arbitraries/random.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { Answer } from "../../operations/operation.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { describeOnGpu, SEED, useGpu } from "../harness/gpu/gpu.js";

/**
 * Row counts on a GPU of 132 multiprocessors: zero, few, those around which a slot has 2, 4 or 8 rows, and those around which
 * blocks begin to draw slots from a counter (4,096 columns of 16 bits: 132 blocks with 6 slots of 4 rows).
 */
const ROWS = [0, 1, 7, 1055, 1057, 2113, 3168, 3169, 4229, 8457];
const COLUMNS = [0, 8, 24, 136, 1024, 4096];
/** Row lengths, for 16-bit and 32-bit types: two rows nearly fill shared memory, or a row exceeds it. */
const LONG = [8192, 16384, 28736, 28744, 57472, 57504, 57512, 115200];

const SHAPES = [
  ...ROWS.flatMap((rows) => COLUMNS.map((columns) => [rows, columns] as const)),
  ...LONG.flatMap((columns) => [1, columns < 2 ** 16 ? 133 : 7].map((rows) => [rows, columns] as const)),
];

/** Numbers of either sign from 2^-7 to 2^8. */
function numbers(dtype: "bf16" | "f32", shape: readonly number[], seed: number): PlainTensor {
  const count = shape.reduce((product, extent) => product * extent, 1);
  const codes = words(seed, count).map((word) => (word & 0x807fffff) | ((120 + ((word >>> 23) % 16)) << 23));
  return fromCodes(dtype, shape, dtype === "f32" ? codes : codes.map((code) => code >>> 16));
}

describeOnGpu("norms of rows of any number and length on a GPU", () => {
  const { gpu, reference } = useGpu();

  it.each(SHAPES)("%i rows of %i", { timeout: 60_000 }, (rows, columns) => {
    for (const dtype of ["bf16", "f32"] as const) {
      const x = numbers(dtype, [rows, columns], SEED);
      const gamma = numbers(dtype, [columns], SEED + 1);
      const run = (backend: Backend): Answer => {
        using _scope = new Scope();
        const [source, factor] = [upload(backend, x), upload(backend, gamma)];
        const layer = layerNorm(source, factor, factor);
        const rms = rmsNorm(source, factor);
        return {
          layer: download(layer.out),
          rstd: download(layer.rstd),
          rms: download(rms.out),
          rmsRstd: download(rms.rstd),
        };
      };
      assertSameAnswer(run(gpu()), run(reference()));
    }
  });
});
