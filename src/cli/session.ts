/** One run of a command: its output streams and its backend. */
import type { Backend } from "../backends/backend.js";
import { openBackend } from "../backends/open.js";
import { printable, printableJson } from "../printable.js";
import type { Values } from "./options.js";
import { Progress, type Sink } from "./progress.js";
import type { GENERAL } from "./shared-options.js";

/** The output streams of a run. */
export interface CliIo {
  readonly stdout: Sink;
  readonly stderr: Sink;
}

/** One run of a command. It opens its backend at the first request and disposes of it at the end. */
export class Session {
  #backend: Promise<Backend> | undefined;

  constructor(
    readonly command: string,
    readonly io: CliIo,
    readonly general: Values<typeof GENERAL>,
  ) {}

  /** Returns the backend that the options choose. Throws `BackendError` with the reason if it is not available. */
  backend(): Promise<Backend> {
    const { backend, threads } = this.general;
    this.#backend ??= openBackend(backend, threads === undefined ? {} : { threads });
    return this.#backend;
  }

  /** Prints the result, as JSON if requested, else as lines of text. Characters that would control the terminal are escaped. */
  result(json: unknown, lines: readonly string[]): void {
    if (this.general.json) this.io.stdout.write(`${printableJson(toJson(json))}\n`);
    else for (const line of lines) this.io.stdout.write(`${printable(line)}\n`);
  }

  /** Prints a summary as `result` does, but no lines of text with the option --quiet. */
  summary(json: unknown, lines: readonly string[]): void {
    this.result(json, this.general.quiet ? [] : lines);
  }

  /**
   * Returns a progress bar on standard error; it draws nothing if that is not a terminal or with --quiet. `total` is in `unit`.
   * Call `finish` at the end.
   */
  progress(total: number, unit: string): Progress {
    const { stderr } = this.io;
    return new Progress(this.general.quiet || !stderr.isTTY ? undefined : stderr, this.command, total, unit);
  }

  async dispose(): Promise<void> {
    const backend = await this.#backend?.catch(() => undefined);
    await backend?.dispose();
  }
}

/** Returns JSON text. Integers beyond 2^53 become strings, because not all readers preserve them. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => {
    if (typeof part !== "bigint") return part;
    return part <= Number.MAX_SAFE_INTEGER ? Number(part) : part.toString();
  });
}
