/**
 * Unfinished files under unique names. They are listed while they exist, so that they can be removed when the process
 * ends.
 */
import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { type FileHandle, open, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { codeOf } from "../files.js";

/** The number of names to try before an error of the folder is assumed. */
const ATTEMPTS = 16;

const temporaries = new Set<string>();

type Listener = (unfinished: boolean, path: string) => void;
let listener: Listener = () => {};

/** Calls `newListener` with `true` before an unfinished file is created, and with `false` after it was renamed or removed. */
export function watchTemporaries(newListener: Listener): void {
  listener = newListener;
}

/** Removes all unfinished files synchronously, for code that is about to end the process. */
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
 * Creates an empty file next to `target`, under a new random name after `.lockstep-` and `kind`, with permissions `mode`. Throws
 * the system's error.
 */
export async function openTemporary(target: string, mode: number, kind = ""): Promise<Temporary> {
  for (let attempt = 1; ; attempt++) {
    const path = join(dirname(target), `.lockstep-${kind}${randomBytes(12).toString("hex")}.tmp`);
    temporaries.add(path);
    listener(true, path);
    try {
      return { path, handle: await open(path, "wx", mode) };
    } catch (error) {
      forget(path);
      if (attempt === ATTEMPTS || codeOf(error) !== "EEXIST") throw error;
    }
  }
}

/** Whether a name is a temporary name that `openTemporary` gives to files of this kind. */
export function isTemporary(name: string, kind: string): boolean {
  return new RegExp(`^\\.lockstep-${kind}[0-9a-f]{24}\\.tmp$`).test(name);
}

/** Removes an unfinished file. */
export async function discard({ path }: Temporary): Promise<void> {
  await rm(path, { force: true });
  forget(path);
}

/** Marks the file as finished, after it was renamed. */
export function finished({ path }: Temporary): void {
  forget(path);
}
