/** Shards that are rounded stochastically, by every operation that quantizes, use the random bits of the full matrix. */
import { describe, expect, it } from "vitest";
import { anyRows, matrixShape } from "../../../arbitraries/matrices.js";
import { LAWS, over } from "../../../laws/laws.js";
import { backendSubject, ORACLE } from "../../../operations/operations.js";
import { shardInputs } from "../../arbitraries/shards.js";
import { drawsOr } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 2 });
const SHARDS = {
  "a shard of a larger matrix": shardInputs((multiple, block) => matrixShape(multiple, block, 2048)),
  "a shard of the columns of any number of rows": shardInputs(anyRows),
};
const RUNS = drawsOr(40);

describe.each(Object.entries(SHARDS))("%s", (_, inputs) => {
  for (const law of LAWS.filter(({ compares, operation }) => compares && inputs[operation])) {
    it(`${law.operation}: ${law.name}`, async () => {
      const result = await over(inputs, law).check(backendSubject(backend()), ORACLE, {
        runs: RUNS,
        seed: 5,
      });
      expect(result).toEqual({ runs: RUNS, declined: [], failure: undefined });
    });
  }
});
