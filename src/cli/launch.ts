/**
 * The main thread of the program. It starts a worker that runs the command (program.ts), and then only waits for signals, because
 * a computing thread does not handle signals. It ends the program within a fraction of a second.
 */
import { rmSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import { failureJson, isJsonRequested } from "./failure.js";
import { STDERR, STDOUT, writeText } from "./standard-streams.js";

const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/** The time, in milliseconds, that a busy worker has to stop before the program ends without it. */
const PATIENCE_MS = 200;

/**
 * A message of the worker: a temporary file or a process group was created (`true`) or no longer exists (`false`). The main
 * thread removes those that still exist if the program ends early.
 */
export type Leftover =
  | { readonly unfinished: boolean; readonly path: string }
  | { readonly running: boolean; readonly group: number };

/** The data with which the worker starts. */
export interface ProgramData {
  readonly args: readonly string[];
  /** The port to which the worker sends `Leftover` messages. */
  readonly port: MessagePort;
  /** The width of the terminal, if standard error is a terminal. */
  readonly columns: number | undefined;
}

/** The temporary files and process groups that the worker has reported and that still exist. */
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

  /** Processes the messages that were sent but not received yet. */
  #catchUp(): void {
    for (;;) {
      const envelope = receiveMessageOnPort(this.port) as { readonly message: Leftover } | undefined;
      if (!envelope) return;
      this.#hear(envelope.message);
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
        // the group has already ended
      }
    }
  }
}

/** Runs the program with the command line of this process. */
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
    if (isJsonRequested(data.args)) writeText(STDOUT, failureJson(error));
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
    // process.exit would wait for the worker; a signal does not
    for (const signal of Object.keys(SIGNALS)) process.off(signal, end);
    process.kill(process.pid, signal);
  }
  for (const signal of Object.keys(SIGNALS)) process.on(signal, end);
}
