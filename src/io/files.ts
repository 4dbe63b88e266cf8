/** File operations that transfer all requested bytes and describe errors of the operating system. */
import { constants, readSync, writeSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { ArgumentError, FileError } from "../errors.js";
import { describe } from "../options.js";
import type { ByteFile } from "./byte-file.js";
import { MAX_TRANSFER_BYTES } from "./limits.js";

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file or folder",
  EACCES: "permission is denied",
  EPERM: "permission is denied",
  EROFS: "the file system is read-only",
  EISDIR: "it is a folder",
  ENOTDIR: "part of the path is no folder",
  ELOOP: "its links lead in a circle",
  ENAMETOOLONG: "the name is too long",
  EMFILE: "too many files are open",
  ENFILE: "too many files are open",
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is used up",
  EFBIG: "the file would be too large",
  ENXIO: "nothing is at its other end",
  ERR_INVALID_ARG_VALUE: "a path has no zero bytes",
};

/** The code of an error of the operating system, such as ENOENT; empty for other errors. */
export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** A `FileError` for an error of the operating system. */
export function fileError(path: string, action: string, cause: unknown): FileError {
  if (cause instanceof FileError) return cause;
  const code = codeOf(cause);
  return new FileError(`${path}: ${action}: ${REASONS[code] ?? (code || String(cause))}`, { cause });
}

/** Throws `ArgumentError` unless `path`, the argument `name` of the function `caller`, is a nonempty string. */
export function requirePath(caller: string, path: unknown, name = "path"): asserts path is string {
  if (typeof path === "string" && path !== "") return;
  throw new ArgumentError(
    `${caller}: ${name} is ${path === "" ? "an empty string" : describe(path)}; it must be the path of a ${name === "folder" ? "folder" : "file"}`,
  );
}

/** A file opened for reading, and its size. */
export interface OpenedFile {
  readonly handle: FileHandle;
  readonly size: number;
}

/**
 * Opens a file for reading. Throws `FileError`, without waiting, if `path` is a folder, a pipe or a device: these have
 * no size and no random access.
 */
export async function openFile(path: string): Promise<OpenedFile> {
  // without O_NONBLOCK, opening a pipe would wait for a writer
  const handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)).catch(
    (cause: unknown) => {
      throw fileError(path, "cannot be read", cause);
    },
  );
  try {
    const stat = await handle.stat();
    if (stat.isFile()) return { handle, size: stat.size };
    const kind = stat.isDirectory() ? "a folder" : stat.isFIFO() ? "a pipe" : "a device or a socket";
    throw new FileError(
      `${path}: cannot be read: it is ${kind}, not a file; write its contents to a file first`,
    );
  } catch (error) {
    await handle.close();
    throw fileError(path, "cannot be read", error);
  }
}

/** Opens a file to read it at positions. Throws the errors of `openFile`. */
export async function openByteFile(path: string): Promise<ByteFile> {
  const { handle, size } = await openFile(path);
  return {
    size,
    read: (position, length) => readAt(path, handle, position, length),
    close: () => handle.close(),
  };
}

/** Reads bytes of a file. Throws `FileError` if the file is too short. */
export async function readAt(
  path: string,
  handle: FileHandle,
  position: number,
  length: number,
): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  await fillAt(path, handle, position, bytes);
  return bytes;
}

/** Transfers at most `length` bytes between a file and `bytes`, and returns the number of transferred bytes. */
type Transfer = (
  handle: FileHandle,
  bytes: Uint8Array,
  offset: number,
  length: number,
  position: number,
) => number | Promise<number>;

/** The number of callers of `waitForFiles` that have not disposed of the result. Transfers are synchronous while it is not 0. */
let waiting = 0;

const read: Transfer = async (handle, ...rest) =>
  waiting > 0 ? readSync(handle.fd, ...rest) : (await handle.read(...rest)).bytesRead;
const write: Transfer = async (handle, ...rest) =>
  waiting > 0 ? writeSync(handle.fd, ...rest) : (await handle.write(...rest)).bytesWritten;

/**
 * Makes the transfers of this thread synchronous until the result is disposed of. That is faster if the thread has nothing else
 * to do: no other thread is woken for each transfer, and the bytes stay in the caches of one core.
 */
export function waitForFiles(): Disposable {
  waiting++;
  let isOver = false;
  return {
    [Symbol.dispose]() {
      if (!isOver) waiting--;
      isOver = true;
    },
  };
}

/** Fills `bytes` with bytes of a file from a position on. Throws `FileError` if the file is too short. */
export async function fillAt(
  path: string,
  handle: FileHandle,
  position: number,
  bytes: Uint8Array,
): Promise<void> {
  const { length } = bytes;
  try {
    for (let offset = 0; offset < length; ) {
      const count = await read(
        handle,
        bytes,
        offset,
        Math.min(length - offset, MAX_TRANSFER_BYTES),
        position + offset,
      );
      if (count === 0)
        throw new FileError(`${path}: ends at byte ${position + offset}; it changed while it was read`);
      offset += count;
    }
  } catch (cause) {
    throw fileError(path, "cannot be read", cause);
  }
}

/** Writes bytes to a file. */
export async function writeAt(
  path: string,
  handle: FileHandle,
  bytes: Uint8Array,
  position: number,
): Promise<void> {
  try {
    for (let offset = 0; offset < bytes.length; ) {
      const length = Math.min(bytes.length - offset, MAX_TRANSFER_BYTES);
      offset += await write(handle, bytes, offset, length, position + offset);
    }
  } catch (cause) {
    throw fileError(path, "cannot be written", cause);
  }
}
