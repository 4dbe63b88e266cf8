/** One run of a command: its output streams, its files and its backend. */
import type { Backend } from "../backends/backend.js";
import { type BackendName, openBackend } from "../backends/open.js";
import { printable, printableJson } from "../text/printable.js";
import { DISK, type Files } from "./files.js";
import type { Values } from "./options.js";
import { Progress, type Sink } from "./progress.js";
import type { GENERAL } from "./shared-options.js";

/** Standard input and output as bytes. */
export interface BinaryStreams {
  /** The bytes of standard input. Throws `ArgumentError` if it is a terminal. */
  read(): AsyncIterable<Uint8Array>;
  /** As `read`, but blocks the thread while it waits. A chunk is valid until the next chunk is requested. */
  readBlocking(): AsyncIterable<Uint8Array>;
  write(bytes: Uint8Array): void;
}

/** An empty standard input, and an output that discards everything. */
export const NO_BINARY: BinaryStreams = {
  read: async function* () {},
  readBlocking: async function* () {},
  write: () => {},
};

/** The streams, files and backends of a run. */
export interface CliIo {
  readonly stdout: Sink;
  readonly stderr: Sink;
  /** The streams of a command that exchanges bytes with another program. */
  readonly binary: BinaryStreams;
  /** The files. Default: on disk. */
  readonly files?: Files;
  /** Backends that several runs share and that outlive these runs. Default: a run opens and disposes of its own backends. */
  readonly backends?: Backends;
}

/** Open backends, by the options that choose them. */
export class Backends {
  readonly #open = new Map<string, Promise<Backend>>();

  /** Opens a backend at the first request. Throws `BackendError` with the reason if it is not available. */
  open(name: BackendName, threads: number | undefined): Promise<Backend> {
    const key = `${name} ${threads}`;
    const open = this.#open.get(key);
    if (open) return open;
    const opened = openBackend(name, threads === undefined ? {} : { threads });
    this.#open.set(key, opened);
    return opened;
  }

  /** Disposes of all open backends. */
  async dispose(): Promise<void> {
    for (const opened of this.#open.values()) await (await opened.catch(() => undefined))?.dispose();
    this.#open.clear();
  }
}

/** One run of a command. It opens its backend at the first request and disposes of it at the end. */
export class Session {
  readonly #ownedBackends = new Backends();

  constructor(
    readonly command: string,
    readonly io: CliIo,
    readonly general: Values<typeof GENERAL>,
  ) {}

  /** The files of this run. */
  get files(): Files {
    return this.io.files ?? DISK;
  }

  /** Returns the backend that the options choose. Throws `BackendError` with the reason if it is not available. */
  backend(): Promise<Backend> {
    const { backend, threads } = this.general;
    return (this.io.backends ?? this.#ownedBackends).open(backend, threads);
  }

  /** Prints the result: as JSON if requested, else as lines of text. Characters that would control the terminal are escaped. */
  result(json: unknown, lines: readonly string[]): void {
    if (this.general.json) this.io.stdout.write(`${printableJson(toJson(json))}\n`);
    else for (const line of lines) this.io.stdout.write(`${printable(line)}\n`);
  }

  /** Prints a summary in the same way as `result`. With the option --quiet, prints no lines of text. */
  summary(json: unknown, lines: readonly string[]): void {
    this.result(json, this.general.quiet ? [] : lines);
  }

  /**
   * Returns a progress bar on standard error. It draws nothing if standard error is not a terminal, or with --quiet. `total` is
   * in `unit`. Call `finish` at the end.
   */
  progress(total: number, unit: string): Progress {
    const { stderr } = this.io;
    return new Progress(this.general.quiet || !stderr.isTTY ? undefined : stderr, this.command, total, unit);
  }

  /** Returns a progress bar of bytes. Its first report sets the total. */
  transferBar(): TransferBar {
    let bar: Progress | undefined;
    return {
      report: ({ bytes, totalBytes }) => {
        bar ??= this.progress(totalBytes, "B");
        bar.set(bytes);
      },
      finish: () => bar?.finish(),
    };
  }

  async dispose(): Promise<void> {
    await this.#ownedBackends.dispose();
  }
}

/** A progress bar of bytes that are read or written. */
export interface TransferBar {
  readonly report: (progress: { readonly bytes: number; readonly totalBytes: number }) => void;
  readonly finish: () => void;
}

/**
 * Returns JSON text. Integers beyond ±2^53 become strings, because not all readers preserve them. NaN, infinities and -0 also
 * become strings, because JSON lacks them.
 */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => {
    if (typeof part === "number")
      return Object.is(part, -0) ? "-0" : Number.isFinite(part) ? part : String(part);
    if (typeof part !== "bigint") return part;
    const nearest = Number(part);
    return Number.isSafeInteger(nearest) ? nearest : part.toString();
  });
}
