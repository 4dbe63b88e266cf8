/** Events on a GPU's stream, and the time between two of them. */
import { expect, it } from "vitest";
import { openBackend } from "../../../src/backends/open.js";
import { zeros } from "../../../src/ops/create.js";
import { add, scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { onSideStream } from "../../../src/ops/side-stream.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";

describeOnGpu("a GPU's timeline", () => {
  const { gpu } = useGpu();

  it("gives the times from each mark to the next, once", () => {
    const { timeline } = gpu();
    expect(Array.from(timeline?.spans() ?? [1])).toEqual([]);
    for (let i = 0; i < 4; i++) {
      timeline?.mark();
      zeros(gpu(), "f32", [1 << 20]).dispose();
    }
    const spans = timeline?.spans() ?? new Float64Array();
    expect(spans).toHaveLength(3);
    expect(spans.every((span) => span >= 0 && span < 10_000)).toBe(true);
    expect(timeline?.spans()).toHaveLength(0);
  });

  it("says how long work waited for each use of the side stream, as long as there are marks", () => {
    const { timeline } = gpu();
    using x = zeros(gpu(), "f32", [1 << 26]);
    using y = zeros(gpu(), "f32", [1 << 20]);
    const waits = (): number[] => {
      onSideStream(gpu(), () => scaled(y, 2, { out: y }));
      onSideStream(gpu(), () => {
        for (let i = 0; i < 50; i++) add(x, x, { out: x });
      });
      scaled(x, 2, { out: x });
      return Array.from(timeline?.waits() ?? []);
    };
    expect(waits()).toEqual([]);
    timeline?.mark();
    const once = waits();
    expect(once).toEqual([0, expect.any(Number)]);
    expect(once[1]).toBeGreaterThan(1);
    const twice = waits();
    expect(twice).toEqual([...once, 0, expect.any(Number)]);
    expect(twice[3]).toBeGreaterThan(1);
    timeline?.mark();
    const [all = 0] = timeline?.spans() ?? [];
    expect(all).toBeGreaterThan((twice[1] ?? 0) + (twice[3] ?? 0));
    expect(waits()).toEqual([]);
  });

  it("may be closed with marks whose times were not read", async () => {
    const other = await openBackend("cuda");
    for (let i = 0; i < 3; i++) other.timeline?.mark();
    await other.dispose();
  });
});
