/**
 * Processes that exchange through the addon and the stand-in for NCCL give the oracle's bits; a failure of one process ends all
 * of them.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, expect, it } from "vitest";
import { elementCount } from "../../../src/tensor/shape.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";
import { type Case, distributedCase, type RankCall } from "../harness/ranks/case.js";
import { deviceFaults } from "../harness/ranks/faults.js";
import { assertExpected, failureMessage, runRanks } from "../harness/ranks/jobs.js";
import { type Environment, endAllRanks, type RankEnd } from "../harness/ranks/processes.js";

const DEADLINE_MS = 110_000;
const RUNS = Number(process.env.RUNS ?? 30);
const SEED = Number(process.env.SEED ?? 1);
const folder = mkdtempSync(join(tmpdir(), "lockstep-stand-in-"));
afterAll(() => rmSync(folder, { recursive: true }));

const onStandIn =
  (rest: Environment = {}) =>
  (): Environment => ({ RANKS_ON: "cuda", ...rest });

/** The case without local additions, because the stand-in of `add` computes nothing. */
const withoutAdditions = ({ programs, expected }: Case): Case | undefined =>
  programs.some(({ calls }) => calls.some(({ addsToItself }) => addsToItself))
    ? undefined
    : { programs, expected };

/** Whether ranks use copies for this call, provided that they can copy. */
const isMoved = ({ onSide, op, shape }: RankCall): boolean =>
  onSide && ["allGather", "allToAll", "allReduce"].includes(op) && elementCount(shape) > 64;

function casesOf(size: number): readonly Case[] {
  const ofSize = distributedCase(4).filter(
    (testCase) => testCase.programs.length === size && withoutAdditions(testCase) !== undefined,
  );
  return fc.sample(ofSize, { numRuns: RUNS, seed: SEED + size });
}

async function programs(
  cases: readonly Case[],
  size: number,
  rest: Environment,
): Promise<readonly RankEnd[]> {
  const file = join(folder, `programs-${size}.json`);
  const programsOfRank = Array.from({ length: size }, (_, rank) =>
    cases.map(({ programs }) => programs[rank]),
  );
  writeFileSync(file, JSON.stringify(programsOfRank));
  return runRanks(["programs", file], size, onStandIn(rest), DEADLINE_MS);
}

describeOnStandIn("ranks of the addon", () => {
  endAllRanks();

  it.each([
    [2, ""],
    [3, "0 2 1"],
    [4, ""],
    [4, "0 2 1 3"],
  ])("give the oracle's bits: %i of them, with the ring [%s]", async (size, ring) => {
    const cases = casesOf(size);
    const exits = await programs(cases, size, { STAND_IN_RING: ring });
    for (const { report: output, stderr } of exits)
      expect(output, stderr).toMatchObject({
        live: 0,
        transport: { kind: "device", description: "NCCL 2.27.7" },
      });
    assertExpected(cases, exits);
  });

  it.each<readonly [string, Environment, boolean]>([
    ["copy to each other on the side stream", {}, true],
    ["copy what is large", { LOCKSTEP_PEER_COPIES: "16" }, true],
    ["have NCCL send where memory cannot be mapped", { STAND_IN_MAPS: "0" }, false],
    ["have NCCL send where memory cannot be exported", { STAND_IN_EXPORTED: "0" }, false],
    ["have NCCL send as the environment says", { LOCKSTEP_PEER_COPIES: "off" }, false],
  ])("%s", async (_what, environment, copies) => {
    const cases = casesOf(3).filter(({ programs }) => programs.some(({ calls }) => calls.some(isMoved)));
    const exits = await programs(cases, 3, environment);
    for (const [rank, { report: output, stderr }] of exits.entries()) {
      // the memory that other ranks copied to is freed too
      expect(output, stderr).toMatchObject({ live: 0, reserved: 0 });
      expect(/copied \d+ bytes to peers/.test(stderr), `rank ${rank}: ${stderr}`).toBe(copies);
    }
    assertExpected(cases, exits);
  });

  it.each([
    ["all of them copy", undefined],
    ["one of them has no memory to copy to", 1],
  ])("gather large tensors on the side stream, where %s", async (_what, short) => {
    const environment = (rank: number): Environment => ({
      ...onStandIn()(),
      ...(rank === short && { STAND_IN_EXPORTED: String(2 ** 21) }),
    });
    const exits = await runRanks(["large"], 3, environment, DEADLINE_MS);
    for (const { report: output, stderr } of exits) {
      expect(output, stderr).toMatchObject({ wrong: [] });
      expect(/copied \d+ bytes to peers/.test(stderr), stderr).toBe(short === undefined);
      // a rank's own part is copied back by the next rank
      if (short === undefined) expect(stderr).not.toMatch(/within a GPU/);
    }
  });

  it("refuse an environment whose LOCKSTEP_PEER_COPIES is no valid number", async () => {
    const exits = await programs([casesOf(2)[0] as Case], 2, { LOCKSTEP_PEER_COPIES: "much" });
    for (const { report: output, stderr } of exits) {
      expect(output?.error, stderr).toMatchObject({ type: "ArgumentError" });
      expect(failureMessage(output)).toMatch(/LOCKSTEP_PEER_COPIES is much.*give a number of bytes or off/);
    }
  });

  it.each<readonly [string, Environment, RegExp]>([
    ["is an old one", { STAND_IN_NCCL: "21705" }, /is NCCL 2\.17\.5; 2\.18 or later is needed/],
    ["is not there", { LOCKSTEP_NCCL: "/nowhere/libnccl.so.2" }, /NCCL is not here: .*LOCKSTEP_NCCL/],
  ])("exchange through the host where NCCL %s, and say why", async (_what, environment, reason) => {
    const [firstCase] = casesOf(2);
    const exits = await programs([firstCase as Case], 2, environment);
    for (const { report: output, stderr } of exits) {
      expect(output, stderr).toMatchObject({
        transport: { kind: "host", description: expect.stringMatching(reason) },
      });
    }
  });

  it("refuse an environment that asks for NVLS, on all ranks", async () => {
    const exits = await programs([casesOf(2)[0] as Case], 2, { NCCL_NVLS_ENABLE: "1" });
    for (const { report: output, stderr } of exits) {
      expect(output?.error, stderr).toMatchObject({ type: "BackendError" });
      expect(failureMessage(output)).toMatch(/NCCL_NVLS_ENABLE is 1.*unset it/);
    }
  });
});

describeOnStandIn("a faulty rank of the addon makes the others throw an error that names it", () => {
  endAllRanks();

  const rows = deviceFaults(3).filter(([name]) => name !== "exits");
  it.each(rows)("%s %s: rank %i", async (name, stream, faulty, { failure, operation = "allReduce" }) => {
    const delayedRank = {
      ...{ TIMEOUT_MS: name === "sleeps" ? "8000" : "30000", SLEEPS_MS: "20000" },
      ...(stream && { ASIDE: "1" }),
    };
    const exits = await runRanks(["fault", name, String(faulty)], 3, onStandIn(delayedRank), DEADLINE_MS);
    for (const { report: output, stderr } of exits.filter((_, rank) => rank !== faulty)) {
      expect(output?.error, stderr).toMatchObject({ type: "DistributedError", failure, operation });
      expect(failureMessage(output)).toContain(`rank ${faulty}`);
    }
  });
});
