/**
 * The stand-in for the kernel that combines parts of several ranks is bitwise equal to the oracle. Tests of processes rely on it.
 */
import { it } from "vitest";
import { checkFold } from "../harness/addon/fold.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

describeOnStandIn("parts of ranks", (addon) => {
  it("are combined to the oracle's bits, for any type, order, number, address and alignment", () => {
    checkFold(addon, { numRuns: Number(process.env.RUNS ?? 150), seed: Number(process.env.SEED ?? 1) });
  });
});
