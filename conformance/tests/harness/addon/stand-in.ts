/** What the tests of the addon without a GPU share (`npm run test:addon`). Elsewhere they are skipped and say so. */
import { describe } from "vitest";
import { platform } from "#platform";
import type { AddonExports } from "../../../../src/backends/cuda/addon.js";

const { LOCKSTEP_STAND_IN } = process.env;

/** As `describe`, skipped with the reason where CUDA has no stand-in. */
export function describeOnStandIn(name: string, body: (addon: AddonExports) => void): void {
  if (LOCKSTEP_STAND_IN) describe(name, () => body(platform.loadAddon().exports as AddonExports));
  else describe.skip(`${name} (npm run test:addon runs it)`, () => undefined);
}
