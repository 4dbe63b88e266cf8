/** Ranks that store a part of each parameter train as ranks that have copies, and as one process. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { useBackends } from "../ranks/backends.js";
import { cases } from "./case.js";
import { copiedRun, oneProcess, shardedRun } from "./runs.js";

const MOST = 8;
const backends = useBackends(MOST);

describe("fully sharded training", () => {
  it("has the losses, parameters, optimizer states and scales of copies, and of one process that adds in the order of ranks", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (given) => {
        const sharded = await shardedRun(backends, given, 2);
        expect(sharded).toEqual(await oneProcess(backends[0] as Backend, given, 2));
        expect(sharded).toEqual(await copiedRun(backends, given, 2));
      }),
      { numRuns: Number(process.env.N ?? 12), seed: Number(process.env.S ?? 3), endOnFailure: true },
    );
  }, 1e6);
});
