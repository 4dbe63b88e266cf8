/**
 * Ranks that are processes give the same bits as ranks in one process. If one fails, every other rank reports which
 * rank failed and in which operation.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Dealer } from "zeromq";
import { loopbackGroup } from "../../../src/collectives/loopback/loopback.js";
import { Hub } from "../../../src/collectives/processes/hub.js";
import { keysOf } from "../../../src/collectives/processes/keys.js";
import {
  type Frame,
  failed,
  framesOf,
  type Message,
  PROTOCOL,
} from "../../../src/collectives/processes/messages.js";
import { empty } from "../../../src/ops/create.js";
import { add } from "../../../src/ops/elementwise/operators.gen.js";
import { onSideStream } from "../../../src/ops/side-stream.js";
import { draws, sampleCases } from "../harness/draws.js";
import { distributedCase } from "../harness/ranks/case.js";
import { FAULTS } from "../harness/ranks/faults.js";
import {
  type Environment,
  endAllRanks,
  freePort,
  inlineProgram,
  jobEnvironment,
  type RankEnd,
  type ReportedError,
  startRank,
  withDeadline,
} from "../harness/ranks/processes.js";
import { runCalls } from "../harness/ranks/program.mjs";

const DEADLINE_MS = 100_000;
const folder = mkdtempSync(join(tmpdir(), "lockstep-ranks-"));
afterAll(() => rmSync(folder, { recursive: true }));
endAllRanks();

const errorReportedBy = ({ report, stderr }: RankEnd): ReportedError => {
  expect(report, stderr).toHaveProperty("error");
  return report?.error as ReportedError;
};

/** Runs a job whose ranks run the same program in the given environments. Returns how each rank ended. */
async function job(
  args: readonly string[],
  size: number,
  environments: readonly Environment[] = [],
  port?: number,
): Promise<readonly RankEnd[]> {
  const jobPort = port ?? (await freePort());
  const ranks = Array.from({ length: size }, (_, rank) =>
    startRank(args, { ...jobEnvironment(rank, size, jobPort), ...environments[rank] }),
  );
  return withDeadline(DEADLINE_MS, Promise.all(ranks.map(({ ended }) => ended)));
}

describe("ranks that are processes", () => {
  it.each(sampleCases([2, 3, 4], 1))("give the bits of ranks in one process: %i of them", async (size) => {
    const casesOfSize = distributedCase(4).filter(({ programs }) => programs.length === size);
    const cases = fc.sample(casesOfSize, { numRuns: draws(40), seed: size });
    const file = join(folder, `programs-${size}.json`);
    const programs = Array.from({ length: size }, (_, rank) =>
      cases.map((testCase) => testCase.programs[rank]),
    );
    writeFileSync(file, JSON.stringify(programs));
    const groups = await loopbackGroup(size);
    const expected = await Promise.all(
      groups.map(async (group, rank) => {
        const reports: unknown[] = [];
        for (const testCase of cases) {
          const pendingCalls = runCalls(
            { empty, add, onSideStream },
            group,
            testCase.programs[rank] as (typeof testCase.programs)[0],
          );
          let next = pendingCalls.next();
          while (!next.done) next = pendingCalls.next();
          reports.push(await next.value);
        }
        return reports;
      }),
    );
    for (const group of groups) await group.dispose();
    const ends = await job(["programs", file], size);
    for (const [rank, { report, stderr }] of ends.entries()) {
      expect(report, stderr).toBeDefined();
      // JSON turns an undefined result into null
      expect(report).toMatchObject({ results: JSON.parse(JSON.stringify(expected[rank])), live: 0 });
      expect(report?.transport).toMatchObject({ kind: "host" });
    }
  });
});

/** The milliseconds that a job of one rank takes on this host, from start to end. */
let startMs = 0;
beforeAll(async () => {
  const startedMs = performance.now();
  await job(["fault", "none", "9"], 1);
  startMs = performance.now() - startedMs;
});

/**
 * If ranks wait for a missing rank: an environment with a short time limit, which is longer than ranks need to start, even on a
 * busy host.
 */
const timeLimit = (isRankMissing: boolean): Environment =>
  isRankMissing ? { TIMEOUT_MS: String(Math.round(Math.max(4_000, 5 * startMs))) } : {};

describe("a rank that fails", () => {
  const rows = Object.entries(FAULTS).flatMap(([name, row], i) =>
    // rank 0, which routes all messages, is tested separately from other ranks
    (["killed", "throws", "sleeps", "order"].includes(name) ? [0, 1] : [i % 3]).map(
      (faultyRank) => [name, faultyRank, row] as const,
    ),
  );
  it.each(sampleCases(rows))(
    "%s: rank %i",
    async (name, faultyRank, { failure, operation = "allReduce" }) => {
      const port = await freePort();
      const ranks = Array.from({ length: 3 }, (_, rank) =>
        startRank(["fault", name, String(faultyRank)], {
          ...jobEnvironment(rank, 3, port),
          ...timeLimit(name === "sleeps"),
        }),
      );
      const survivors = ranks.filter((_, rank) => rank !== faultyRank);
      const ends = await withDeadline(DEADLINE_MS, Promise.all(survivors.map(({ ended }) => ended)));
      const errors = ends.map(errorReportedBy);
      // the sleeping rank would report only after ten minutes
      if (name === "sleeps") ranks[faultyRank]?.kill();
      await withDeadline(DEADLINE_MS, Promise.all(ranks.map(({ ended }) => ended)));
      for (const reportedError of errors) {
        expect(reportedError).toMatchObject({ type: "DistributedError", failure, operation });
        expect(reportedError.message).toContain(`rank ${faultyRank}`);
        // if two ranks disagree, either may report it, and each names the other
        if (failure !== "disagreement") expect(reportedError.rank).toBe(faultyRank);
      }
    },
  );
});

/** The token that `jobOf` gives. */
const TOKEN = jobEnvironment(0, 2, 0).LOCKSTEP_JOB_TOKEN as string;

/** A client of a job's rank 0 that knows the token. Tests choose its messages. */
function connectDealer(port: number): Dealer {
  const { publicKey, secretKey } = keysOf(TOKEN);
  const keys = { curveServerKey: publicKey, curvePublicKey: publicKey, curveSecretKey: secretKey };
  const dealer = new Dealer({ ...keys, linger: 0, receiveTimeout: 20_000 });
  dealer.connect(`tcp://127.0.0.1:${port}`);
  return dealer;
}

describe("a job", () => {
  it("reports which rank did not join in time", async () => {
    const port = await freePort();
    const ranks = [0, 1].map((rank) =>
      startRank(["fault", "none", "9"], { ...jobEnvironment(rank, 3, port), ...timeLimit(true) }),
    );
    const ends = await withDeadline(DEADLINE_MS, Promise.all(ranks.map(({ ended }) => ended)));
    for (const end of ends)
      expect(errorReportedBy(end)).toMatchObject({
        failure: "deadline",
        operation: "openProcessGroup",
        rank: 2,
      });
  });

  it.each(
    sampleCases<readonly [string, Environment, RegExp]>(
      [
        ["another token", { LOCKSTEP_JOB_TOKEN: "guessed" }, /token/],
        ["another world size", { WORLD_SIZE: "4" }, /WORLD_SIZE 4 and rank 0 with 3/],
        ["a rank that there is", {}, /there is a rank 1 already/],
        [
          "the rank of the one that listens",
          { RANK: "3", WORLD_SIZE: "4" },
          /WORLD_SIZE 4 and rank 0 with 3/,
        ],
      ],
      1,
    ),
  )("refuses who has %s, and goes on", async (_what, environment, message) => {
    const port = await freePort();
    const environmentFor = (rank: number) => jobEnvironment(rank, 3, port);
    const run = (jobVariables: Environment) => startRank(["fault", "none", "9"], jobVariables).ended;
    const rank0 = run(environmentFor(0));
    const isDouble = Object.keys(environment).length === 0;
    // if two ranks have the same number, the one that connects later is refused
    const runs = [environmentFor(1), ...(isDouble ? [environmentFor(1)] : [])].map(run);
    const refusedRun = isDouble ? Promise.race(runs) : run({ ...environmentFor(1), ...environment });
    const refusal = errorReportedBy(await withDeadline(DEADLINE_MS, refusedRun));
    expect(refusal).toMatchObject({ failure: "refused", operation: "openProcessGroup" });
    expect(refusal.message).toMatch(message);
    const ends = await withDeadline(DEADLINE_MS, Promise.all([rank0, ...runs, run(environmentFor(2))]));
    expect(ends.filter(({ report }) => report && !("error" in report))).toHaveLength(3);
  });

  it("says at once that an address leads nowhere", async () => {
    const environment = { ...jobEnvironment(1, 2, await freePort()), MASTER_ADDR: ".." };
    const { ended } = startRank(["fault", "none", "9"], environment);
    const error = errorReportedBy(await withDeadline(DEADLINE_MS, ended));
    expect(error).toMatchObject({ failure: "refused", operation: "openProcessGroup", rank: 0 });
    expect(error.message).toContain("rank 1 cannot connect to rank 0 at ..:");
  });

  it.each(sampleCases([0, 1], 1))(
    'refuses the transport "device" on all ranks where it is not there, if rank %i is late',
    async (lateRank) => {
      const ends = await job(["device", String(lateRank)], 3);
      for (const end of ends) {
        expect(errorReportedBy(end)).toMatchObject({ type: "BackendError" });
        expect(errorReportedBy(end).message).toMatch(/the wasm backend exchanges through the host/);
      }
    },
  );

  it("refuses a rank with another version of the protocol", async () => {
    const port = await freePort();
    const rank0 = startRank(["fault", "none", "9"], jobEnvironment(0, 2, port));
    const dealer = connectDealer(port);
    await dealer.send(JSON.stringify({ kind: "hello", protocol: 0, rank: 1, size: 2 }));
    const [reply] = await dealer.receive();
    dealer.close();
    expect(JSON.parse(String(reply))).toMatchObject({
      failure: "refused",
      message: expect.stringMatching(/protocol 0 and rank 0 protocol \d+; install the same version/),
    });
    const rank1 = startRank(["fault", "none", "9"], jobEnvironment(1, 2, port));
    const ends = await withDeadline(DEADLINE_MS, Promise.all([rank0.ended, rank1.ended]));
    expect(ends.map(({ report }) => report)).toEqual([{}, {}]);
  });

  it("hears of each rank what that rank sends, and nothing in the name of another or of a stranger", async () => {
    const port = await freePort();
    const messagesHeard: Message[] = [];
    const place = { rank: 0, size: 3, address: "127.0.0.1", port, token: TOKEN, timeoutMs: 20_000 };
    const hub = new Hub(place, (message) => messagesHeard.push(message));
    const pendingOpen = hub.open();
    const dealers = [1, 2, undefined].map((rank) => ({ dealer: connectDealer(port), rank }));
    for (const { dealer, rank } of dealers)
      if (rank !== undefined)
        await dealer.send(JSON.stringify({ kind: "hello", protocol: PROTOCOL, rank, size: 3 }));
    expect(await pendingOpen).toBeUndefined();
    const unauthorizedDealer = dealers[2]?.dealer as Dealer;
    await unauthorizedDealer.send(JSON.stringify({ kind: "hello", protocol: 0, rank: 1, size: 3 }));
    await unauthorizedDealer.receive();
    for (const frame of [failed("aborted", 1, "it is not its job"), { kind: "left", rank: 1 } as const])
      await unauthorizedDealer.send([...framesOf(frame)]);
    const call = { operation: "test", text: "test", key: "test" };
    for (const { dealer, rank } of dealers)
      for (const from of [0, 1, 2]) {
        const header = { from, to: 0, group: `sent by ${rank}` };
        const data = { kind: "data", ...header, call, bytes: Uint8Array.of(1) } as const;
        for (const frame of [data, { kind: "notes", ...header, notes: [] } as const])
          await dealer.send([...framesOf(frame as Frame)]);
      }
    // a rank's last message follows all its other messages
    for (const { dealer, rank } of dealers)
      if (rank !== undefined) await dealer.send([...framesOf({ kind: "left", rank })]);
    await hub.leave();
    for (const { dealer } of dealers) dealer.close();
    const replies = messagesHeard.map((message) =>
      message.kind === "data" || message.kind === "notes"
        ? `${message.kind} from ${message.from}, ${"group" in message ? message.group : ""}`
        : message.kind,
    );
    const expected = [1, 2].flatMap((rank) => [
      `data from ${rank}, sent by ${rank}`,
      `notes from ${rank}, sent by ${rank}`,
      "left",
    ]);
    expect(replies.sort()).toEqual(expected.sort());
  });

  it("runs a program that Node got as text", async () => {
    const port = await freePort();
    const ranks = [0, 1].map((rank) =>
      startRank(["fault", "none", "9"], jobEnvironment(rank, 2, port), inlineProgram()),
    );
    const ends = await withDeadline(DEADLINE_MS, Promise.all(ranks.map(({ ended }) => ended)));
    expect(ends.map(({ report, stderr }) => report ?? stderr)).toEqual([{}, {}]);
  });

  it("continues when a stranger connects that speaks another protocol", async () => {
    const port = await freePort();
    const rank0 = startRank(["fault", "none", "9"], jobEnvironment(0, 2, port));
    for (const text of ["GET / HTTP/1.1\r\n\r\n", "\xff\0\0\0\0\0\0\0\x01\x7f", "x".repeat(70_000)]) {
      await new Promise<void>((resolve) => {
        const attempt = (): void => {
          const socket = connect(port, "127.0.0.1", () => socket.end(text, "latin1"));
          socket.on("error", () => setTimeout(attempt, 100));
          socket.on("close", (hadError) => hadError || resolve());
          socket.resume();
        };
        attempt();
      });
    }
    const rank1 = startRank(["fault", "none", "9"], jobEnvironment(1, 2, port));
    const ends = await withDeadline(DEADLINE_MS, Promise.all([rank0.ended, rank1.ended]));
    expect(ends.map(({ report }) => report)).toEqual([{}, {}]);
  });

  it("reports that its port is already in use", async () => {
    const server = createServer();
    const port = await new Promise<number>((resolve) => {
      server.listen(0, "127.0.0.1", () => resolve((server.address() as { port: number }).port));
    });
    const end = await withDeadline(
      DEADLINE_MS,
      startRank(["fault", "none", "9"], jobEnvironment(0, 2, port)).ended,
    );
    server.close();
    expect(errorReportedBy(end)).toMatchObject({ failure: "refused", rank: 0 });
    expect(errorReportedBy(end).message).toMatch(/cannot listen on port \d+: .*LOCKSTEP_PORT/);
  });

  it.each(
    sampleCases<readonly [string, Environment]>(
      [
        ["RANK", { WORLD_SIZE: "2" }],
        ["WORLD_SIZE", { RANK: "0" }],
        ["MASTER_PORT", { RANK: "0", WORLD_SIZE: "2", MASTER_ADDR: "localhost" }],
        ["MASTER_ADDR", { RANK: "0", WORLD_SIZE: "2", MASTER_PORT: "29500" }],
        [
          "LOCKSTEP_JOB_TOKEN",
          { RANK: "0", WORLD_SIZE: "2", MASTER_PORT: "29500", MASTER_ADDR: "localhost" },
        ],
        ["RANK", { RANK: "2", WORLD_SIZE: "2" }],
        ["RANK", { RANK: "one", WORLD_SIZE: "2" }],
      ],
      2,
    ),
  )("says that %s is missing or wrong", async (name, environment) => {
    const noCalls = {
      RANK: "",
      WORLD_SIZE: "",
      MASTER_PORT: "",
      MASTER_ADDR: "",
      LOCKSTEP_JOB_TOKEN: "",
      LOCKSTEP_PORT: "",
    };
    const end = await withDeadline(
      DEADLINE_MS,
      startRank(["fault", "none", "9"], { ...noCalls, ...environment, TIMEOUT_MS: "1000" }).ended,
    );
    expect(errorReportedBy(end).message).toContain(name);
    expect(errorReportedBy(end).type).toBe("ArgumentError");
  });
});
