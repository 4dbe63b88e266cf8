/** One run of a command: where it prints, and the backend it computes on. */
import type { Backend } from "../backends/backend.js";
import { openBackend } from "../backends/open.js";
import { printable, printableJson } from "../printable.js";
import type { Values } from "./options.js";
import { Progress, type Sink } from "./progress.js";
import type { GENERAL } from "./shared-options.js";

/** Where a run prints. */
export interface CliIo {
  readonly stdout: Sink;
  readonly stderr: Sink;
}

/** Opens its backend when first asked, and disposes of it at the end. */
export class Session {
  #backend: Promise<Backend> | undefined;

  constructor(
    readonly command: string,
    readonly io: CliIo,
    readonly general: Values<typeof GENERAL>,
  ) {}

  /** The backend the options ask for. Throws `BackendError` with the reason where it is not to be had. */
  backend(): Promise<Backend> {
    const { backend, threads } = this.general;
    this.#backend ??= openBackend(backend, threads === undefined ? {} : { threads });
    return this.#backend;
  }

  /** The result: as JSON where that is asked for, else as lines of text. Names of tensors and files do nothing to a terminal. */
  result(json: unknown, lines: readonly string[]): void {
    if (this.general.json) this.io.stdout.write(`${printableJson(toJson(json))}\n`);
    else for (const line of lines) this.io.stdout.write(`${printable(line)}\n`);
  }

  /** As `result`, for what a quiet run does not say. */
  summary(json: unknown, lines: readonly string[]): void {
    this.result(json, this.general.quiet ? [] : lines);
  }

  /** A progress bar on stderr where that is a terminal; call `finish` on it. `total` is in units of `unit`. */
  progress(total: number, unit: string): Progress {
    const { stderr } = this.io;
    return new Progress(this.general.quiet || !stderr.isTTY ? undefined : stderr, this.command, total, unit);
  }

  async dispose(): Promise<void> {
    const backend = await this.#backend?.catch(() => undefined);
    await backend?.dispose();
  }
}

/** JSON text; integers beyond 2^53, which not all readers keep, become strings. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => {
    if (typeof part !== "bigint") return part;
    return part <= Number.MAX_SAFE_INTEGER ? Number(part) : part.toString();
  });
}
