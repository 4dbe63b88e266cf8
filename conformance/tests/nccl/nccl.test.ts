/**
 * Ranks with one GPU each give the same bits as ranks in one process. If one rank fails, every other rank reports which rank
 * failed and in which operation.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, expect, it } from "vitest";
import { distributedCase } from "../harness/ranks/case.js";
import { deviceFaults } from "../harness/ranks/faults.js";
import { assertExpected, failureMessage, runRanks } from "../harness/ranks/jobs.js";
import {
  type Environment,
  endAllRanks,
  freePort,
  jobEnvironment,
  startRank,
  withDeadline,
} from "../harness/ranks/processes.js";
import { describeOnRanks, GPUS } from "./gpus.js";

const DEADLINE_MS = 100_000;
const RUNS = Number(process.env.RUNS ?? 12);
const SEED = Number(process.env.SEED ?? 1);
const ELEMENTS = Number(process.env.ELEMENTS ?? 2 ** 22);
const folder = mkdtempSync(join(tmpdir(), "lockstep-nccl-"));
afterAll(() => rmSync(folder, { recursive: true }));
endAllRanks();

const onGpu = (rank: number): Environment => ({ RANKS_ON: "cuda", LOCAL_RANK: String(rank) });

describeOnRanks("ranks with a GPU each", () => {
  it("give the oracle's bits: any operation, size, type, shards, plan and mesh", async () => {
    const ofSize = distributedCase(GPUS).filter(({ programs }) => programs.length === GPUS);
    const cases = fc.sample(ofSize, { numRuns: 60, seed: SEED });
    const file = join(folder, "programs.json");
    const programs = Array.from({ length: GPUS }, (_, rank) =>
      cases.map((programCase) => programCase.programs[rank]),
    );
    writeFileSync(file, JSON.stringify(programs));
    const exits = await runRanks(["programs", file], GPUS, onGpu, DEADLINE_MS);
    for (const { report: output, stderr } of exits) {
      expect(output, stderr).toMatchObject({ live: 0, transport: { kind: "device" } });
    }
    assertExpected(cases, exits);
  });

  it("give the bits of ranks in one process, for each of many elements", async () => {
    const script = new URL("ranks/bulk.mjs", import.meta.url).pathname;
    const exits = await runRanks(
      [String(SEED), String(RUNS), String(ELEMENTS)],
      GPUS,
      onGpu,
      280_000,
      script,
    );
    let sameCount = 0;
    for (const { report: output, stderr } of exits) {
      expect(output, stderr).toBeDefined();
      expect(output?.failure, JSON.stringify(output)).toBeUndefined();
      expect(output).toMatchObject({ live: 0, transport: { kind: "device" } });
      sameCount += output?.same as number;
    }
    process.stdout.write(`${sameCount} elements: ${JSON.stringify(exits[0]?.report)}\n`);
  }, 300_000);
});

describeOnRanks("a faulty rank with a GPU makes the others throw an error that names it", () => {
  const rows = deviceFaults(GPUS);
  it.each(rows)("%s %s: rank %i", async (name, stream, faulty, { failure, operation = "allReduce" }) => {
    const port = await freePort();
    const environment = { ...(name === "sleeps" && { TIMEOUT_MS: "15000" }), ...(stream && { ASIDE: "1" }) };
    const ranks = Array.from({ length: GPUS }, (_, rank) =>
      startRank(["fault", name, String(faulty)], {
        ...jobEnvironment(rank, GPUS, port),
        ...environment,
        ...onGpu(rank),
      }),
    );
    const survivors = ranks.filter((_, rank) => rank !== faulty);
    const exits = await withDeadline(DEADLINE_MS, Promise.all(survivors.map(({ ended }) => ended)));
    if (name === "sleeps") ranks[faulty]?.kill();
    await withDeadline(DEADLINE_MS, Promise.all(ranks.map(({ ended }) => ended)));
    for (const { report: output, stderr } of exits) {
      expect(output?.error, stderr).toMatchObject({ type: "DistributedError", failure, operation });
      expect(failureMessage(output)).toContain(`rank ${faulty}`);
    }
  });
});
