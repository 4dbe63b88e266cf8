/** Writes files, first under a temporary name, so that a failed run leaves no incomplete file. */
import { type FileHandle, rename } from "node:fs/promises";
import { dirname } from "node:path";
import { fileError } from "../files.js";
import { syncFolder, targetOf } from "./target.js";
import { discard, finished, openTemporary } from "./temporaries.js";

/**
 * Writes a file with the contents that `body` writes. The file appears at `path` after all bytes are on the disk; it does not
 * appear if `body` throws. Links are followed, and a replaced file keeps its permissions. The temporary name contains `kind`,
 * which distinguishes the files that killed processes have left. Throws `FileError` for errors of the operating system.
 */
export async function replaceFile(
  path: string,
  body: (handle: FileHandle) => Promise<void>,
  kind = "",
): Promise<void> {
  const target = await targetOf(path);
  const cannot = (cause: unknown): never => {
    throw fileError(path, "cannot be written", cause);
  };
  // a file that replaces another can be read by its owner only, until it gets the permissions of the other file
  const mode = target.mode === undefined ? 0o666 : 0o600;
  const temporary = await openTemporary(target.path, mode, kind).catch(cannot);
  const { handle } = temporary;
  try {
    try {
      await body(handle);
      if (target.mode !== undefined) await handle.chmod(target.mode).catch(cannot);
      await handle.sync().catch(cannot);
    } finally {
      await handle.close().catch(cannot);
    }
    await rename(temporary.path, target.path).catch(cannot);
  } catch (error) {
    // the first error is reported, even if removing the unfinished file fails too
    await discard(temporary).catch(() => undefined);
    throw error;
  }
  finished(temporary);
  await syncFolder(dirname(target.path));
}
