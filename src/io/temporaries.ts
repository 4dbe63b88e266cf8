/**
 * Unfinished files: under names that nobody else has, known while they exist, so that whatever ends a process can remove them.
 */
import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { type FileHandle, open, rm } from "node:fs/promises";
import { dirname, join } from "node:path";

/** Names that are tried before it is the folder's fault. */
const ATTEMPTS = 16;

const temporaries = new Set<string>();

type Listener = (unfinished: boolean, path: string) => void;
let listener: Listener = () => {};

/** Calls `told` before an unfinished file is made, with `true`, and when it is none any more, with `false`. */
export function watchTemporaries(told: Listener): void {
  listener = told;
}

/** Removes unfinished files at once: for whatever is about to end the process. */
export function removeTemporaries(): void {
  for (const path of temporaries) {
    rmSync(path, { force: true });
    forget(path);
  }
}

function forget(path: string): void {
  if (temporaries.delete(path)) listener(false, path);
}

/** A file that is renamed when it is complete. */
export interface Temporary {
  readonly path: string;
  readonly handle: FileHandle;
}

/**
 * Makes an empty file beside `target`, under a random name that no file has, with permissions `mode`. Throws what the system
 * says.
 */
export async function openTemporary(target: string, mode: number): Promise<Temporary> {
  for (let attempt = 1; ; attempt++) {
    const path = join(dirname(target), `.lockstep-${randomBytes(12).toString("hex")}.tmp`);
    temporaries.add(path);
    listener(true, path);
    try {
      return { path, handle: await open(path, "wx", mode) };
    } catch (error) {
      forget(path);
      if (attempt === ATTEMPTS || !isTaken(error)) throw error;
    }
  }
}

/** Whether a name was taken before. */
function isTaken(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "EEXIST";
}

/** Removes a file that will not be finished. */
export async function discard({ path }: Temporary): Promise<void> {
  await rm(path, { force: true });
  forget(path);
}

/** The file has its own name now. */
export function finished({ path }: Temporary): void {
  forget(path);
}
