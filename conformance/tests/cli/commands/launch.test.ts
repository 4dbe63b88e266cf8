/** `lockstep launch`: the documents' first program on one process and on four, and the end of all ranks together. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { programPath } from "../../harness/bundle.js";
import { sampleCases } from "../../harness/draws.js";

const ROOT = new URL("../../../..", import.meta.url).pathname;
// inside the package folder, so that programs can import the package by its name
const PLACE = `${ROOT}out/launch-test/`;
const PROGRAM = programPath("bin");

beforeAll(() => mkdirSync(PLACE, { recursive: true }));
afterAll(() => rmSync(PLACE, { recursive: true, force: true }));

function write(name: string, source: string): string {
  writeFileSync(PLACE + name, source);
  return PLACE + name;
}

interface Run {
  readonly child: ChildProcess;
  readonly output: () => string;
  readonly ended: Promise<{
    readonly status: number | null;
    readonly stdout: string;
    readonly stderr: string;
  }>;
}

function start(...args: readonly string[]): Run {
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text: Buffer) => {
    stdout += text;
  });
  child.stderr.on("data", (text: Buffer) => {
    stderr += text;
  });
  const ended = once(child, "close").then(([status]) => ({
    status: status as number | null,
    stdout,
    stderr,
  }));
  return { child, output: () => stdout, ended };
}

const launch = (...args: readonly string[]): Run => start(PROGRAM, "launch", ...args);

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    // a zombie (ended, but not yet waited for) counts as ended
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
};

/** Fails unless all of these processes end soon. */
async function expectGone(pids: readonly number[]): Promise<void> {
  expect(pids.length).toBeGreaterThan(0);
  for (let tries = 0; tries < 100 && pids.some(isAlive); tries++) await setTimeout(100);
  expect(pids.filter(isAlive)).toEqual([]);
}

const pidsIn = (text: string): readonly number[] =>
  Array.from(text.matchAll(/^pid (\d+)$/gm), ([, pid]) => Number(pid));

async function untilPids(run: Run, count: number): Promise<readonly number[]> {
  for (let tries = 0; tries < 300 && pidsIn(run.output()).length < count; tries++) await setTimeout(100);
  return pidsIn(run.output());
}

/** The source of a rank that joins the group, prints its pid, and then runs `body`. */
const ranks = (body: string): string => `
import { openBackend, tensor } from "${programPath("library")}";
import { openProcessGroup } from "${programPath("distributed")}";
const backend = await openBackend("wasm", { threads: 1 });
const group = await openProcessGroup(backend);
console.log("pid " + process.pid);
const sum = () => group.allReduce(tensor(backend, [1]));
${body}
await group.dispose();
await backend.dispose();
`;

describe("the first program of docs/distributed.md", () => {
  const source = /^```js\n(.*?)^```$/ms.exec(readFileSync(`${ROOT}docs/distributed.md`, "utf8"))?.[1] ?? "";
  const expectedOutput = /→ (\w+)/.exec(source)?.[1];

  const runs: readonly (readonly [string, () => Run])[] = [
    ["one process", () => start(`${PLACE}train.mjs`)],
    ["one rank", () => launch("-n", "1", `${PLACE}train.mjs`)],
    ["four ranks, on the backend that it is told", () => launch("-n", "4", `${PLACE}train.mjs`, "wasm")],
  ];
  it.each(sampleCases(runs, 1))("prints its hash on %s", async (_what, run) => {
    write("train.mjs", source);
    expect(expectedOutput).toMatch(/^[0-9a-f]{16}$/);
    expect(await run().ended).toEqual({ status: 0, stdout: `${expectedOutput}\n`, stderr: "" });
  });
});

describe("lockstep launch", () => {
  it("passes each rank its number and the program its arguments", async () => {
    const file = write(
      "show.mjs",
      "const { RANK, LOCAL_RANK, WORLD_SIZE } = process.env; console.log(RANK, LOCAL_RANK, WORLD_SIZE, ...process.argv.slice(2));",
    );
    const { status, stdout } = await launch("-n", "2", file, "x", "--", "--y").ended;
    expect([status, stdout.trimEnd().split("\n").sort()]).toEqual([0, ["0 0 2 x --y", "1 1 2 x --y"]]);
  });

  it("ends the ranks that keep running after one has failed, and reports how each rank ended", async () => {
    const stuckProgram = write(
      "stuck.mjs",
      ranks(
        'if (group.rank === 1) process.exit(7); process.on("SIGTERM", () => {}); await new Promise((done) => setTimeout(done, 600_000));',
      ),
    );
    const run = launch("-n", "3", stuckProgram);
    const { status, stdout, stderr } = await run.ended;
    expect(status).toBe(1);
    expect(stderr).toContain("lockstep launch: rank 0 was ended by SIGKILL");
    expect(stderr).toContain("lockstep launch: rank 1 ended with status 7");
    await expectGone(pidsIn(stdout));
  });

  it("lets the other ranks report which rank failed", async () => {
    const { status, stderr } = await launch(
      "-n",
      "3",
      write(
        "killed.mjs",
        ranks('sum(); if (group.rank === 2) process.kill(process.pid, "SIGKILL"); sum(); sum();'),
      ),
    ).ended;
    expect(status).toBe(1);
    expect(stderr.match(/DistributedError: allReduce: rank 2 is gone/g)).toHaveLength(2);
    expect(stderr).toContain("rank 2 was ended by SIGKILL");
  });

  it.each(sampleCases(["SIGTERM", "SIGINT", "SIGKILL"] as const, 1))(
    "ended by %s leaves no rank behind",
    async (signal) => {
      const run = launch(
        "-n",
        "3",
        write(
          "waits.mjs",
          ranks("if (group.rank > 0) sum(); await new Promise((done) => setTimeout(done, 600_000));"),
        ),
      );
      const pids = await untilPids(run, 3);
      run.child.kill(signal);
      await run.ended;
      await expectGone(pids);
    },
  );

  it("reports invalid arguments, with the valid ones", async () => {
    for (const [args, message] of [
      [["-n", "2", `${PLACE}none.mjs`], /there is no such program/],
      [["-n", "0", PROGRAM], /"0" is not an integer from 1 to 64/],
      [[], /FILE… is needed/],
    ] as const) {
      const { status, stderr } = await launch(...args).ended;
      expect([status, stderr]).toEqual([2, expect.stringMatching(message)]);
    }
  });
});
