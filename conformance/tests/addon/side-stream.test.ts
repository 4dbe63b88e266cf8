/**
 * The order of work on the side stream and the main stream. The stand-in for CUDA ends the process if two accesses to the same
 * memory are not ordered.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { Timeline } from "../../../src/backends/backend.js";
import { openCuda } from "../../../src/backends/cuda/backend.js";
import { ArgumentError } from "../../../src/errors.js";
import { empty, zeros } from "../../../src/ops/create.js";
import { add, scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { captureGraph } from "../../../src/ops/graph.js";
import { onSideStream } from "../../../src/ops/side-stream.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";
import { runStreams, streamProgram } from "../harness/gpu/streams.js";

describeOnStandIn("the side stream of a device", (addon) => {
  it("is ordered with the main stream wherever memory is allocated, used, freed or reused", async () => {
    // sizes with free lists, and larger ones
    await fc.assert(
      fc.asyncProperty(streamProgram([4, 64, 2 ** 13]), async (program) => {
        const gpu = openCuda(addon);
        await runStreams(gpu, program);
        expect(gpu.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
        await gpu.dispose();
      }),
      { numRuns: 100, seed: 1 },
    );
  }, 120_000);

  it("is ordered with the main stream where memory allocated on it is a block that the main stream freed before", async () => {
    const gpu = openCuda(addon);
    using x = zeros(gpu, "f32", [64]);
    using tensor = onSideStream(gpu, () => {
      add(x, x).dispose();
      return empty(gpu, "f32", [64]);
    });
    tensor.write(new Float32Array(64));
    expect(tensor.dataSync()).toHaveLength(64);
    x.dispose();
    tensor.dispose();
    await gpu.dispose();
  });

  it("has each of its uses waited for once, and the time of that is counted between marks", async () => {
    const gpu = openCuda(addon);
    const timeline = gpu.timeline as Timeline;
    const waits = (): number[] => Array.from(timeline.waits());
    using x = zeros(gpu, "f32", [64]);
    using y = zeros(gpu, "f32", [64]);
    using tensor = zeros(gpu, "f32", [64]);
    const use = (): void => void onSideStream(gpu, () => scaled(x, 2, { out: x }));
    const useOnMain = (): void => void scaled(x, 3, { out: x });
    const work = (): void => {
      use();
      scaled(y, 3, { out: y });
      useOnMain();
      useOnMain();
    };
    // the stand-in puts a millisecond between any two events
    work();
    expect(waits()).toEqual([]);
    use();
    timeline.mark();
    useOnMain();
    expect(waits()).toEqual([]);
    work();
    onSideStream(gpu, () => scaled(tensor, 2, { out: tensor }));
    work();
    // a wait for one use is also a wait for all earlier uses
    expect(waits()).toEqual([1, 0, 1]);
    scaled(tensor, 3, { out: tensor });
    expect(waits()).toEqual([1, 0, 1]);
    for (let i = 0; i < 3; i++) use();
    useOnMain();
    // the first work needs no wait, because it has already completed
    expect(waits().slice(3)).toEqual([0, 0, 1]);
    use();
    timeline.mark();
    expect(Array.from(timeline.spans())).toEqual([1]);
    timeline.mark();
    useOnMain();
    expect(waits()).toEqual([]);
    use();
    expect(waits()).toEqual([0]);
    await gpu.dispose();
  });

  it("refuses to capture or replay a graph, and can be used again after that error", async () => {
    const gpu = openCuda(addon);
    using x = zeros(gpu, "f32", [64]);
    using graph = captureGraph(gpu, () => void scaled(x, 2, { out: x }));
    expect(() => onSideStream(gpu, () => graph.replay())).toThrow(ArgumentError);
    expect(() => onSideStream(gpu, () => captureGraph(gpu, () => {}))).toThrow(ArgumentError);
    onSideStream(gpu, () => scaled(x, 3, { out: x }));
    graph.replay();
    onSideStream(gpu, () => graph.dispose());
    expect(x.dataSync()).toHaveLength(64);
    await gpu.dispose();
  });
});
