/** Work on the side stream of a GPU gives the same bits as work on one stream, whichever operation uses its memory next. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { tensor } from "../../../src/ops/create.js";
import { rmsNorm } from "../../../src/ops/rows/norm.js";
import { onSideStream } from "../../../src/ops/side-stream.js";
import { normal } from "../../../src/random.js";
import { Scope } from "../../../src/tensor/scope.js";
import { differenceOf } from "../../values/difference.js";
import { download, type PlainTensor } from "../../values/plain.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "../harness/gpu/gpu.js";
import { runStreams, streamProgram } from "../harness/gpu/streams.js";

const isSame = (a: Float32Array, b: Float32Array): boolean =>
  a.length === b.length && a.every((value, i) => Object.is(value, b[i]));

/** So many rows that the blocks of norms on both streams draw rows from counters. */
const ROWS = 4096;
const COLUMNS = 2048;

describeOnGpu("the side stream of a GPU", () => {
  const { gpu, reference } = useGpu();

  it("gives the reference's bits for any program", async () => {
    await fc.assert(
      fc.asyncProperty(streamProgram([4, 64, 2 ** 12]), async (program) => {
        const [actual, wanted] = [await runStreams(gpu(), program), await runStreams(reference(), program)];
        const differing = wanted.flatMap((each, i) => (isSame(each, actual[i] as Float32Array) ? [] : [i]));
        expect(differing).toEqual([]);
      }),
      { numRuns: Math.ceil(RUNS / 4), seed: SEED },
    );
  }, 300_000);

  it("shares no counters with the main stream", () => {
    const values = normal({ seed: 1n, offset: 0n }, ROWS * COLUMNS, 1);
    const run = (backend: Backend, times: number): readonly PlainTensor[] => {
      using _ = new Scope();
      const x = tensor(backend, values, [ROWS, COLUMNS]);
      const gamma = tensor(backend, new Float32Array(COLUMNS).fill(1));
      const norm = () => rmsNorm(x, gamma).out;
      return Array.from({ length: times }, () => [onSideStream(backend, norm), norm()])
        .flat()
        .map(download);
    };
    const [wanted] = run(reference(), 1);
    for (const each of run(gpu(), 4)) expect(differenceOf(each, wanted as PlainTensor)).toBeUndefined();
  });
});
