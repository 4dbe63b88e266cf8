/** Reading safetensors files without loading them: the header at once, each tensor when asked for. */
import { type FileHandle, open } from "node:fs/promises";
import { FileError } from "../errors.js";
import { type Header, parseHeader, type TensorEntry } from "./header.js";
import { TensorSource } from "./source.js";

/** The longest header that readers of the format accept. */
const LONGEST_HEADER = 100_000_000;

/** Node reads and writes less than 2 GiB at a time. */
export const LARGEST_TRANSFER = 2 ** 30;

/** An open safetensors file. Close it. */
export class SafetensorsFile extends TensorSource {
  readonly #handle: FileHandle;
  readonly #dataStart: number;

  private constructor(path: string, handle: FileHandle, header: Header, dataStart: number) {
    super(path, header);
    this.#handle = handle;
    this.#dataStart = dataStart;
  }

  /** Opens and checks a file. Throws `FileError` with what is wrong, from a missing file to overlapping tensors. */
  static async open(path: string): Promise<SafetensorsFile> {
    const handle = await open(path, "r").catch((cause: unknown) => {
      throw fileError(path, "cannot be read", cause);
    });
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) throw new FileError(`${path}: is not a file; a safetensors file is needed`);
      const headerBytes = await headerLength(path, handle, stat.size);
      const bytes = await readAt(path, handle, 8, headerBytes);
      const dataStart = 8 + headerBytes;
      return new SafetensorsFile(path, handle, parseHeader(path, bytes, stat.size - dataStart), dataStart);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  override async read(entry: TensorEntry, begin = 0, end = entry.end - entry.begin): Promise<Uint8Array> {
    return readAt(this.path, this.#handle, this.#dataStart + entry.begin + begin, end - begin);
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }
}

async function headerLength(path: string, handle: FileHandle, fileSize: number): Promise<number> {
  if (fileSize < 8) throw new FileError(`${path}: has ${fileSize} bytes; a safetensors file has at least 10`);
  const prefix = await readAt(path, handle, 0, 8);
  const length = new DataView(prefix.buffer, prefix.byteOffset).getBigUint64(0, true);
  if (length > LONGEST_HEADER) {
    throw new FileError(
      `${path}: its header would have ${length} bytes; ${LONGEST_HEADER} are the most; is this safetensors?`,
    );
  }
  if (Number(length) > fileSize - 8) {
    throw new FileError(
      `${path}: its header has ${length} bytes and ${fileSize - 8} follow; the file is truncated`,
    );
  }
  return Number(length);
}

async function readAt(
  path: string,
  handle: FileHandle,
  position: number,
  length: number,
): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; ) {
    const { bytesRead } = await handle.read(
      bytes,
      at,
      Math.min(length - at, LARGEST_TRANSFER),
      position + at,
    );
    if (bytesRead === 0)
      throw new FileError(`${path}: ends at byte ${position + at}; it changed while it was read`);
    at += bytesRead;
  }
  return bytes;
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file or folder",
  EACCES: "permission is denied",
  EISDIR: "it is a folder",
  ENOSPC: "the disk is full",
};

/** A `FileError` in words for what the operating system said. */
export function fileError(path: string, what: string, cause: unknown): FileError {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  return new FileError(`${path}: ${what}: ${REASONS[code] ?? (code || String(cause))}`, { cause });
}
