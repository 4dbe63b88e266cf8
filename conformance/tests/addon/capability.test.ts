/** The addon reports the GPUs for which it was compiled, and `openBackend` refuses every other GPU before it opens it. */
import { afterEach, expect, it, vi } from "vitest";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

describeOnStandIn("a GPU", (addon) => {
  afterEach(() => {
    delete process.env.STAND_IN_CAPABILITY;
    vi.resetModules();
  });

  it("of the default build has code for sm_89, sm_90a and sm_100a", () => {
    expect(addon.versions().architectures).toBe("89-real 90a-real 100a-real");
  });

  it.each([
    [80, "FP8 needs sm_89 or later"],
    [103, "--architectures 103a-real"],
    [120, "--architectures 120a-real"],
  ])("of compute capability %i/10 is refused, and auto opens the reference", async (capability, advice) => {
    process.env.STAND_IN_CAPABILITY = String(capability);
    const { openBackend, missingBackends } = await import("../../../src/backends/open.js");
    expect(missingBackends()[0]?.attempts[0]).toMatch(`stand-in is sm_${capability}`);
    await expect(openBackend("cuda")).rejects.toMatchObject({
      code: "BACKEND",
      message: expect.stringMatching(advice),
    });
    const auto = await openBackend("auto", { threads: 1 });
    expect(auto.name).toBe("wasm");
    await auto.dispose();
  });

  it.each([89, 90, 100])("of compute capability %i/10 is opened", async (capability) => {
    process.env.STAND_IN_CAPABILITY = String(capability);
    const { openBackend } = await import("../../../src/backends/open.js");
    const backend = await openBackend("cuda");
    expect(backend.description).toMatch(`stand-in, sm_${capability}`);
    await backend.dispose();
  });
});
