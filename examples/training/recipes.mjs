/** The recipes to compare. The first one is the baseline. */
import {
  DelayedScaling,
  Float8BlockScaling,
  Float8CurrentScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "lockstep";

/**
 * The rows. `allowance` is the number of percentage points of accuracy that the recipe may lose. Without `make`,
 * products run in bf16.
 */
export const RECIPES = [
  { name: "bf16" },
  { name: "DelayedScaling", allowance: 0.5, make: () => new DelayedScaling({ amaxHistoryLen: 16 }) },
  { name: "Float8CurrentScaling", allowance: 0.5, make: () => new Float8CurrentScaling() },
  { name: "Float8BlockScaling", allowance: 0.5, make: () => new Float8BlockScaling() },
  { name: "MXFP8BlockScaling", allowance: 0.5, make: () => new MXFP8BlockScaling() },
  { name: "NVFP4BlockScaling", allowance: 1.5, make: () => new NVFP4BlockScaling() },
];
