/** Files that are read at positions: on a disk, or as a `Blob`. */
import { ArgumentError, FileError } from "../errors.js";
import { describe, fieldOf } from "../options.js";

/** An open file. Call `close` at the end. */
export interface ByteFile {
  /** The number of bytes. */
  readonly size: number;
  /** Reads `length` bytes from a position on. Throws `FileError` if the file is too short or cannot be read. */
  read(position: number, length: number): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** Bytes that are read in pieces: a `Blob` or a `File`. */
export interface BlobLike {
  /** The number of bytes. */
  readonly size: number;
  /** Returns bytes [begin, end) as another blob. */
  slice(begin?: number, end?: number): BlobLike;
  /** Reads all bytes. */
  arrayBuffer(): Promise<ArrayBuffer>;
}

/** Throws `ArgumentError` for anything but a `Blob` or an object with its `size`, `slice` and `arrayBuffer`. */
export function requireBlob(caller: string, value: unknown): asserts value is BlobLike {
  const size = fieldOf(caller, "blob", value, "size");
  const hasMethods = ["slice", "arrayBuffer"].every(
    (method) => typeof fieldOf(caller, "blob", value, method) === "function",
  );
  if (hasMethods && Number.isSafeInteger(size) && (size as number) >= 0) return;
  throw new ArgumentError(`${caller}: blob is ${describe(value)}; it must be a Blob or a File`);
}

/** A blob as a file. `path` names it in errors. */
export function blobFile(path: string, blob: BlobLike): ByteFile {
  return {
    size: blob.size,
    read: async (position, length) => {
      let bytes: Uint8Array;
      try {
        bytes = new Uint8Array(await blob.slice(position, position + length).arrayBuffer());
      } catch (cause) {
        throw new FileError(`${path}: cannot be read: ${cause instanceof Error ? cause.message : cause}`, {
          cause,
        });
      }
      if (bytes.length === length) return bytes;
      throw new FileError(`${path}: ends at byte ${position + bytes.length}; it changed while it was read`);
    },
    close: async () => {},
  };
}
