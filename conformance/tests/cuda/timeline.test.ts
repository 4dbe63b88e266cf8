/** Events on a GPU's stream, and the time between two of them. */
import { expect, it } from "vitest";
import { openBackend } from "../../../src/backends/open.js";
import { zeros } from "../../../src/ops/create.js";
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

  it("may be closed with marks whose times were not read", async () => {
    const other = await openBackend("cuda");
    for (let i = 0; i < 3; i++) other.timeline?.mark();
    await other.dispose();
  });
});
