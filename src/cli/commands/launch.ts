/** `lockstep launch`: runs a program as several processes (ranks) on this host. */
import { randomBytes } from "node:crypto";
import { stat } from "node:fs/promises";
import { createServer } from "node:net";
import { setTimeout } from "node:timers/promises";
import { FileError } from "../../errors.js";
import { requirePackages } from "../../packages.js";
import { type Child, type Ended, startChild } from "../child-group.js";
import { defineCommand } from "../command.js";
import { integer, value } from "../options.js";

const HOST = "127.0.0.1";

/**
 * After a rank has failed, the other ranks have GRACE_MS to report the failure and exit. Then they get SIGTERM, and END_MS later
 * SIGKILL. In milliseconds.
 */
const GRACE_MS = 5000;
const END_MS = 2000;

/** Returns a TCP port that is currently free. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, HOST, resolve);
  });
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address !== null ? address.port : 0;
}

const hasFailed = ({ status }: Ended): boolean => status !== 0;

/** Waits until all ranks have ended. If a rank fails, the other ranks are stopped after a time limit. */
async function untilAllEnd(ranks: readonly Child[]): Promise<readonly Ended[]> {
  const allEnded = Promise.all(ranks.map(({ ended }) => ended));
  const failure = Promise.race(
    ranks.map(({ ended }) =>
      ended.then((ending) => (hasFailed(ending) ? undefined : new Promise<undefined>(() => undefined))),
    ),
  );
  const ended = await Promise.race([allEnded, failure]);
  if (ended) return ended;
  for (const [signal, wait] of [
    ["SIGTERM", GRACE_MS],
    ["SIGKILL", END_MS],
  ] as const) {
    const timer = new AbortController();
    const timeoutElapsed = setTimeout(wait, undefined, { signal: timer.signal }).catch(() => undefined);
    const outcome = await Promise.race([allEnded, timeoutElapsed]);
    timer.abort();
    if (outcome) return outcome;
    for (const rank of ranks) rank.kill(signal);
  }
  return allEnded;
}

const wordsOf = ({ status, signal }: Ended): string =>
  signal ? `was ended by ${signal}` : status === 0 ? "ended in order" : `ended with status ${status}`;

export const launch = defineCommand({
  name: "launch",
  summary: "runs a program as several processes (ranks) on this host; exits with 1 if a rank fails",
  details: [
    "Each rank is a Node process with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and a token of the job in its environment, as openProcessGroup() needs them. The arguments after FILE are passed to the program; put -- before arguments that begin with a dash, --backend and --json too, which launch has no use for. If a rank fails, the others are told, and are ended if they do not end by themselves.",
  ],
  example: "-n 4 train.mjs -- --steps 100",
  inputs: ["FILE…"],
  options: {
    ranks: value({
      short: "n",
      placeholder: "N",
      help: "number of ranks",
      parse: integer(1, 64),
      fallback: 1,
      shown: "1",
    }),
  },
  without: ["backend", "json"],
  async run({ session, values: { ranks: size }, inputs: [file = "", ...args] }) {
    const info = await stat(file).catch((cause: unknown) => {
      throw new FileError(`${file}: there is no such program`, { cause });
    });
    if (!info.isFile()) throw new FileError(`${file} is no file; give the program's path`);
    if (size > 1) requirePackages("a group of several processes", "zeromq");
    const job = {
      WORLD_SIZE: String(size),
      LOCAL_WORLD_SIZE: String(size),
      MASTER_ADDR: HOST,
      MASTER_PORT: String(await freePort()),
      LOCKSTEP_JOB_TOKEN: randomBytes(32).toString("hex"),
      LOCKSTEP_LAUNCHED: "1",
    };
    const started = Array.from({ length: size }, (_, rank) => {
      const environment = { ...job, RANK: String(rank), LOCAL_RANK: String(rank) };
      return startChild(process.execPath, [file, ...args], { stdio: ["ignore", 1, 2], environment });
    });
    const ended = await untilAllEnd(started);
    if (!ended.some(hasFailed)) return 0;
    for (const [rank, ending] of ended.entries())
      session.io.stderr.write(`lockstep launch: rank ${rank} ${wordsOf(ending)}\n`);
    return 1;
  },
});
