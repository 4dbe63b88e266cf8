/** The kernel that combines arrays of several ranks is bitwise equal to the oracle. */
import { it } from "vitest";
import type { AddonExports } from "../../../src/backends/cuda/addon.js";
import { platform } from "../../../src/backends/platform/node.js";
import { fencedAddon } from "../harness/addon/fenced.js";
import { checkFold } from "../harness/addon/fold.js";
import { describeOnGpu, RUNS, SEED } from "../harness/gpu/gpu.js";

describeOnGpu("parts of ranks", () => {
  it("are combined to the oracle's bits, for any type, order, number, address and alignment", () => {
    checkFold(fencedAddon(platform.loadAddon().exports as AddonExports), { numRuns: 3 * RUNS, seed: SEED });
  });
});
