/**
 * Arbitrary JavaScript arguments to the addon change no memory outside the tensors that they name. The addon is built with
 * sanitizers, which report violations.
 */
import { expect, it } from "vitest";
import { survivesAnyArguments } from "../harness/addon/arguments.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

const RUNS = Number(process.env.RUNS ?? 30_000);
const SEED = Number(process.env.SEED ?? 1);

describeOnStandIn("the addon", (addon) => {
  it("either works or throws an Error for arguments of any kind, and each function works for some of them", {
    timeout: 300_000,
  }, async () => {
    // a single rank has no peer to exchange with; ranks.test.ts tests these calls
    const pairedCalls = ["ncclSend", "ncclReceive"];
    const rare = await survivesAnyArguments(addon, { numRuns: RUNS, seed: SEED });
    // a function whose arguments are seldom valid gets more draws
    expect(await survivesAnyArguments(addon, { numRuns: RUNS, seed: SEED, names: rare })).toEqual(
      pairedCalls,
    );
  });
});
