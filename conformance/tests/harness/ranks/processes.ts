/** Starts ranks as processes of this host, and always ends them after the test. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { afterEach, expect } from "vitest";
import { programPath } from "../bundle.js";

const RANK_PROGRAM = new URL("./rank.mjs", import.meta.url).pathname;

/** The program of a rank as a string. A program in a file would have the file's path as its first argument. */
export const inlineProgram = (): readonly string[] => [
  "--input-type=module",
  "--eval",
  `process.argv.splice(1, 0, "text"); await import(${JSON.stringify(programPath("rank"))})`,
];

/** The exit of a rank, and its output. */
export interface RankEnd {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The last line of its output, if that is JSON. */
  readonly report: Readonly<Record<string, unknown>> | undefined;
  readonly stderr: string;
}

/** The error that a rank reported. */
export interface ReportedError {
  readonly type: string;
  readonly failure: string;
  readonly operation: string;
  readonly rank: number;
  readonly message: string;
}

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address ? address.port : 0;
}

const running = new Set<ChildProcess>();

/** Kills all ranks that are still running. */
export function endAllRanks(): void {
  afterEach(() => {
    const runningCount = running.size;
    for (const child of running) child.kill("SIGKILL");
    running.clear();
    expect(runningCount, "processes that were still running").toBe(0);
  });
}

export type Environment = Readonly<Record<string, string>>;

/** The environment variables of a rank. */
export function jobEnvironment(rank: number, size: number, port: number): Environment {
  return {
    RANK: String(rank),
    WORLD_SIZE: String(size),
    MASTER_ADDR: "127.0.0.1",
    MASTER_PORT: String(port),
    LOCKSTEP_JOB_TOKEN: "the job's own",
    TIMEOUT_MS: "30000",
  };
}

/** Starts one rank. `program` precedes the arguments of the rank on Node's command line: a file, or options. */
export function startRank(
  args: readonly string[],
  environment: Environment,
  // bundles do not find the addon of a GPU
  program: readonly string[] = [environment.RANKS_ON === undefined ? programPath("rank") : RANK_PROGRAM],
) {
  const child = spawn(process.execPath, [...program, ...args], {
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => {
    stdout += chunk;
  });
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk;
  });
  const ended = once(child, "close").then(([status, signal]): RankEnd => {
    running.delete(child);
    const lastLine = stdout.trimEnd().split("\n").at(-1) ?? "";
    return {
      status: status as number | null,
      signal: signal as NodeJS.Signals | null,
      report: lastLine.startsWith("{") ? (JSON.parse(lastLine) as Record<string, unknown>) : undefined,
      stderr,
    };
  });
  return { ended, kill: () => child.kill("SIGKILL") };
}

/** Waits for `promise`. Throws if the wait takes longer than `ms` milliseconds. */
export async function withDeadline<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`ranks were still running after ${ms} ms`)), ms);
  });
  return Promise.race([promise, deadline]).finally(() => clearTimeout(timer));
}
