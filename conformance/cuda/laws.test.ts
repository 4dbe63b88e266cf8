/** Every law of every operation, on a GPU against the reference: small inputs aimed at edges, then large ones. */
import { describe, expect, it } from "vitest";
import { LARGE_INPUTS } from "../arbitraries/large.js";
import { describeOnGpu, useGpu } from "../harness/gpu.js";
import type { Law } from "../harness/law.js";
import { LAWS, over } from "../harness/laws.js";
import { backendSubject, type OperationName } from "../harness/operations.js";
import { record } from "../harness/record.js";
import { inputsFor } from "../harness/run.js";

/** Inputs for each law; RUNS=10000 is the long suite. */
const RUNS = Number(process.env.RUNS ?? 100);
const SEED = Number(process.env.SEED ?? 1);

/** Operations of which a GPU declines some inputs, with a reason. */
const DECLINES: readonly OperationName[] = ["gemm"];

describeOnGpu("on a GPU, to the bit", () => {
  const { gpu, reference } = useGpu();

  const holds = async (law: Law, runs: number, group: "laws" | "large"): Promise<void> => {
    const result = await law.check(backendSubject(gpu()), backendSubject(reference()), { runs, seed: SEED });
    expect(result.failure).toBeUndefined();
    if (DECLINES.includes(law.operation)) expect(result.runs).toBeGreaterThan(runs / 4);
    else expect(result).toMatchObject({ runs, declined: [] });
    record(gpu(), { group, name: law.name, runs: result.runs, declined: result.declined });
  };

  for (const law of LAWS) {
    it(`${law.operation}: ${law.name}`, () => holds(over(inputsFor(gpu()), law), RUNS, "laws"));
  }

  describe("large inputs", () => {
    const agreements = LAWS.filter(({ compares, operation }) => compares && LARGE_INPUTS[operation]);
    for (const law of agreements) {
      it(`${law.operation}: ${law.name}`, () =>
        holds(over(LARGE_INPUTS, law), Math.ceil(RUNS / 10), "large"));
    }
  });
});
