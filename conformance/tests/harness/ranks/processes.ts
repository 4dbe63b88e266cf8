/** Starts ranks as processes of this host, and always ends them after the test. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { afterEach, expect } from "vitest";
import { programOf } from "../bundle.js";

const RANK = new URL("./rank.mjs", import.meta.url).pathname;

/** The program of a rank as a string. A program in a file would have the file's path as its first argument. */
export const asText = (): readonly string[] => [
  "--input-type=module",
  "--eval",
  `process.argv.splice(1, 0, "text"); await import(${JSON.stringify(programOf("rank"))})`,
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
export interface Told {
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
    const left = running.size;
    for (const child of running) child.kill("SIGKILL");
    running.clear();
    expect(left, "processes that were still running").toBe(0);
  });
}

export type Environment = Readonly<Record<string, string>>;

/** The environment variables of a rank. */
export function jobOf(rank: number, size: number, port: number): Environment {
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
  program: readonly string[] = [environment.RANKS_ON === undefined ? programOf("rank") : RANK],
) {
  const child = spawn(process.execPath, [...program, ...args], {
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text: Buffer) => {
    stdout += text;
  });
  child.stderr.on("data", (text: Buffer) => {
    stderr += text;
  });
  const ended = once(child, "close").then(([status, signal]): RankEnd => {
    running.delete(child);
    const last = stdout.trimEnd().split("\n").at(-1) ?? "";
    return {
      status: status as number | null,
      signal: signal as NodeJS.Signals | null,
      report: last.startsWith("{") ? (JSON.parse(last) as Record<string, unknown>) : undefined,
      stderr,
    };
  });
  return { ended, kill: () => child.kill("SIGKILL") };
}

/** Waits for `what`; throws if it takes longer than `ms` milliseconds. */
export async function within<T>(ms: number, what: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`ranks were still running after ${ms} ms`)), ms);
  });
  return Promise.race([what, late]).finally(() => clearTimeout(timer));
}
