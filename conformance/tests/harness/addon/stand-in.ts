/**
 * Helpers for the tests of the addon without a GPU (`npm run test:addon`). Other runs skip these tests with a reason.
 */
import { describe } from "vitest";
import { platform } from "#platform";
import type { AddonExports } from "../../../../src/backends/cuda/addon.js";

const { LOCKSTEP_STAND_IN } = process.env;

/** As `describe`. If the addon is not built with the stand-in for CUDA, the tests are skipped with the reason. */
export function describeOnStandIn(name: string, body: (addon: AddonExports) => void): void {
  if (LOCKSTEP_STAND_IN) describe(name, () => body(platform.loadAddon().exports as AddonExports));
  else describe.skip(`${name} (npm run test:addon runs it)`, () => undefined);
}
