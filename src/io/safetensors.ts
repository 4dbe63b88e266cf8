/** Reads safetensors files without loading them: the header when the file is opened, and each tensor on request. */

import type { FileHandle } from "node:fs/promises";
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";
import { fillAt, openFile, readAt, requirePath } from "./files.js";
import { type ParsedHeader, parseHeader, type TensorEntry } from "./header/header.js";
import { headerLengthOf, LENGTH_BYTES, requireLength } from "./header/header-length.js";
import { endOf, rangeOf, TensorSource } from "./source.js";

/**
 * The maximum number of bytes of a window. A small tensor is read together with the bytes after it, so that later small tensors
 * need no read. The number is small enough that reading a single tensor costs little.
 */
const WINDOW_BYTES = 1 << 16;

/** The most recently read window of a file. */
interface Window {
  readonly begin: number;
  readonly bytes: Promise<Uint8Array>;
}

/**
 * An open safetensors file. The header has been read; tensors are read on request. `tensors` and `metadata` are the contents of
 * the header, and `entry` finds a tensor. Call `close` at the end.
 *
 *     const file = await SafetensorsFile.open("model.safetensors");
 *     const bytes = await file.read(file.entry("steps")); // little endian, of any type
 *     await file.close();
 */
export class SafetensorsFile extends TensorSource {
  static {
    guardReceivers(this, (x) => isObject(x) && #handle in x);
  }

  readonly #handle: FileHandle;
  readonly #dataStart: number;
  readonly #size: number;
  readonly #table: ParsedHeader["tensors"];
  #window: Window | undefined;

  private constructor(
    path: string,
    handle: FileHandle,
    header: ParsedHeader,
    dataStart: number,
    size: number,
  ) {
    super(path, header);
    this.#handle = handle;
    this.#dataStart = dataStart;
    this.#size = size;
    this.#table = header.tensors;
  }

  /**
   * Opens a file and checks its header. Throws `FileError` with the reason, for example a missing file or overlapping tensors. It
   * never allocates more memory than the size of the file, whatever the header claims.
   */
  static async open(path: string): Promise<SafetensorsFile> {
    requirePath("safetensors", path);
    const { handle, size } = await openFile(path);
    try {
      const headerBytes = await headerLength(path, handle, size);
      const bytes = await readAt(path, handle, 8, headerBytes);
      const dataStart = 8 + headerBytes;
      return new SafetensorsFile(path, handle, parseHeader(path, bytes, size - dataStart), dataStart, size);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /**
   * Reads bytes [begin, end) of a tensor, by default all. Throws `ArgumentError` for an entry of another file or a range outside
   * of the tensor, `FileError` if the file cannot be read or was closed.
   */
  override async read(entry: TensorEntry, begin?: number, end?: number): Promise<Uint8Array> {
    return this.#read(this.#requireOwnEntry(entry), ...rangeOf(this.path, entry, begin, end));
  }

  /**
   * Fills `into` with bytes of a tensor from `begin` on. Throws `ArgumentError` if `into` is not a `Uint8Array`, and the errors
   * of `read`.
   */
  override async readInto(entry: TensorEntry, begin: number, into: Uint8Array): Promise<void> {
    const [from, to] = rangeOf(this.path, this.#requireOwnEntry(entry), begin, endOf(this.path, begin, into));
    if (to - from <= WINDOW_BYTES / 4) into.set(await this.#read(entry, from, to));
    else await fillAt(this.path, this.#handle, this.#dataStart + entry.begin + from, into);
  }

  #requireOwnEntry(entry: TensorEntry): TensorEntry {
    if (typeof entry === "object" && entry !== null && this.#table.owns(entry)) return entry;
    throw new ArgumentError(
      `${this.path}: read: entry is ${describe(entry)}, which is not an entry of this file; pass the result of entry(name)`,
    );
  }

  async #read(entry: TensorEntry, begin: number, end: number): Promise<Uint8Array> {
    const position = this.#dataStart + entry.begin + begin;
    const length = end - begin;
    if (length > WINDOW_BYTES / 4) return readAt(this.path, this.#handle, position, length);
    const window = this.#windowOf(position, length);
    const from = position - window.begin;
    return (await window.bytes).slice(from, from + length);
  }

  #windowOf(position: number, length: number): Window {
    const window = this.#window;
    if (window && position >= window.begin && position + length <= window.begin + WINDOW_BYTES) return window;
    const size = Math.min(WINDOW_BYTES, this.#size - position);
    this.#window = { begin: position, bytes: readAt(this.path, this.#handle, position, size) };
    return this.#window;
  }

  /** Closes the file; later reads throw `FileError`. */
  async close(): Promise<void> {
    await this.#handle.close();
  }
}

async function headerLength(path: string, handle: FileHandle, fileSize: number): Promise<number> {
  requireLength(path, fileSize);
  return headerLengthOf(path, await readAt(path, handle, 0, LENGTH_BYTES), fileSize);
}
