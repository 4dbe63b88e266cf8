/** Resolves the path of a file to write. */
import { constants } from "node:fs";
import { access, type FileHandle, lstat, open, readlink, realpath } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { FileError } from "../../errors.js";
import { codeOf, fileError } from "../files.js";

/** The maximum number of links, as in Linux. */
const MAX_LINKS = 40;

/** The path to write, and the permissions of the existing file. */
export interface Target {
  readonly path: string;
  readonly mode?: number;
}

/**
 * Follows links to the path to write, which need not exist yet. The links themselves are kept. Throws `FileError` if the target
 * is not a regular file, is not writable, or has no folder.
 */
export async function targetOf(path: string): Promise<Target> {
  const fail = (cause: unknown): FileError => fileError(path, "cannot be written", cause);
  let current = resolve(path);
  for (let links = 0; links < MAX_LINKS; links++) {
    const folder = await realpath(dirname(current)).catch((cause: unknown) => {
      throw fail(cause);
    });
    const file = join(folder, basename(current));
    const stats = await lstat(file).catch((cause: unknown) => {
      if (codeOf(cause) === "ENOENT") return undefined;
      throw fail(cause);
    });
    if (stats?.isSymbolicLink()) {
      current = resolve(folder, await readlink(file));
      continue;
    }
    if (!stats) return { path: file };
    if (!stats.isFile())
      throw new FileError(`${path}: cannot be written: something other than a file is there`);
    await access(file, constants.W_OK).catch((cause: unknown) => {
      throw fail(cause);
    });
    return { path: file, mode: stats.mode & 0o7777 };
  }
  throw new FileError(`${path}: cannot be written: its links lead in a circle`);
}

/** The error codes of systems that cannot flush folders. */
const CANNOT_FLUSH: readonly string[] = ["EINVAL", "EISDIR", "EPERM", "EACCES", "ENOTSUP", "EBADF"];

/** Waits until the entries of a folder are on the disk, if the system supports that. */
export async function syncFolder(folder: string): Promise<void> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(folder, "r");
    await handle.sync();
  } catch (cause) {
    if (!CANNOT_FLUSH.includes(codeOf(cause)))
      throw fileError(folder, "cannot be flushed to the disk", cause);
  } finally {
    await handle?.close();
  }
}
