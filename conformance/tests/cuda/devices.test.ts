/** Several GPUs of one machine, each opened as a separate backend. */
import { expect, it } from "vitest";
import { cudaDevices, openBackend } from "../../../src/backends/open.js";
import { ArgumentError, BackendError } from "../../../src/errors.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { execute } from "../../../src/ops/execute.js";
import { describeOnGpu } from "../harness/gpu/gpu.js";

describeOnGpu("devices", () => {
  it("compute at the same time, and each refuses another's tensors", async () => {
    const backends = await Promise.all(cudaDevices().map((_, device) => openBackend("cuda", { device })));
    const inputs = backends.map((backend, i) => tensor(backend, [1, -2, i]));
    const codes = inputs.map((x) => encode(x, { format: "bf16" }));
    for (const [i, each] of codes.entries()) {
      const expected = Float32Array.of(1, -2, i);
      const bits = Array.from(new Uint32Array(expected.buffer), (word) => word >>> 16);
      expect(Array.from(await each.data())).toEqual(bits);
    }
    const [first, second] = inputs;
    if (first && second) {
      const out = { x: second, out: tensor(backends[0] as (typeof backends)[number], [0]) };
      expect(() => execute(first.backend, "amax", out)).toThrow(ArgumentError);
      out.out.dispose();
    }
    for (const each of [...inputs, ...codes]) each.dispose();
    for (const backend of backends) {
      expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
      await backend.dispose();
    }
  });

  it("are numbered from 0", async () => {
    const count = cudaDevices().length;
    await expect(openBackend("cuda", { device: count })).rejects.toThrow(BackendError);
    await expect(openBackend("cuda", { device: count })).rejects.toThrow(new RegExp(`there are ${count}`));
    for (const device of [-1, 0.5, Number.NaN])
      await expect(openBackend("cuda", { device })).rejects.toThrow(ArgumentError);
  });
});
