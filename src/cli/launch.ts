/**
 * The program's main thread: it waits, and a worker does the work (program.ts). A thread that computes sees no signals; this
 * one does, and ends the program within a fraction of a second.
 */
import { rmSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import { STDERR, STDOUT, writeText } from "./standard-streams.js";

const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/** How long a worker in the middle of something may take to stop before the process goes without it. */
const PATIENCE_MS = 200;

/** What has to go when the program ends early, as the worker tells of it: a file that is unfinished, a group of processes. */
export type Leftover =
  | { readonly unfinished: boolean; readonly path: string }
  | { readonly running: boolean; readonly group: number };

/** What the worker is started with. */
export interface ProgramData {
  readonly args: readonly string[];
  /** Where it tells of leftovers. */
  readonly port: MessagePort;
  /** The width of the terminal that standard error is, where it is one. */
  readonly columns: number | undefined;
}

/** What the worker has told of. */
class Leftovers {
  readonly #files = new Set<string>();
  readonly #groups = new Set<number>();

  constructor(private readonly port: MessagePort) {
    port.on("message", (message: Leftover) => this.#hear(message));
    port.unref();
  }

  #hear(message: Leftover): void {
    if ("path" in message) this.#files[message.unfinished ? "add" : "delete"](message.path);
    else this.#groups[message.running ? "add" : "delete"](message.group);
  }

  /** Hears what was said and not heard yet. */
  #catchUp(): void {
    for (;;) {
      const received = receiveMessageOnPort(this.port) as { readonly message: Leftover } | undefined;
      if (!received) return;
      this.#hear(received.message);
    }
  }

  removeFiles(): void {
    this.#catchUp();
    for (const path of this.#files) rmSync(path, { force: true });
  }

  endGroups(signal: NodeJS.Signals): void {
    this.#catchUp();
    for (const group of this.#groups) {
      try {
        process.kill(-group, signal);
      } catch {
        // it has ended by itself
      }
    }
  }
}

/** Runs the command line of this process. */
export function launch(): void {
  const { port1, port2 } = new MessageChannel();
  const leftovers = new Leftovers(port1);
  const columns = process.stderr.isTTY ? process.stderr.columns : undefined;
  const data: ProgramData = { args: process.argv.slice(2), port: port2, columns };
  const worker = new Worker(new URL("./program.js", import.meta.url), {
    workerData: data,
    transferList: [port2],
    stdout: true,
    stderr: true,
  });
  worker.stdout.on("data", (text: Buffer) => writeText(STDOUT, text.toString()));
  worker.stderr.on("data", (text: Buffer) => writeText(STDERR, text.toString()));
  worker.on("error", (error) => {
    writeText(STDERR, `lockstep: unexpected error: ${error.message.replace(/\s*\n\s*/g, " ")}\n`);
    leftovers.removeFiles();
    process.exit(2);
  });
  worker.on("exit", (status) => {
    process.exitCode = status;
    for (const signal of Object.keys(SIGNALS)) process.off(signal, end);
  });

  async function end(signal: keyof typeof SIGNALS): Promise<void> {
    leftovers.endGroups(signal);
    const stopped = await Promise.race([worker.terminate().then(() => true), setTimeout(PATIENCE_MS, false)]);
    leftovers.removeFiles();
    if (stopped) process.exit(SIGNALS[signal]);
    // leaving in order would wait for the worker; the signal itself does not
    for (const each of Object.keys(SIGNALS)) process.off(each, end);
    process.kill(process.pid, signal);
  }
  for (const signal of Object.keys(SIGNALS)) process.on(signal, end);
}
