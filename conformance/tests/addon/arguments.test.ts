/** Whatever JavaScript passes to the addon, memory outside of what it names stays as it is; the sanitizers watch. */
import { expect, it } from "vitest";
import { survivesArguments } from "../harness/addon/arguments.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

const RUNS = Number(process.env.RUNS ?? 20_000);
const SEED = Number(process.env.SEED ?? 1);

describeOnStandIn("the addon", (addon) => {
  it("works or throws an Error for arguments of any kind; every function comes to work among them", {
    timeout: 300_000,
  }, async () => {
    expect(await survivesArguments(addon, { numRuns: RUNS, seed: SEED })).toEqual([]);
  });
});
