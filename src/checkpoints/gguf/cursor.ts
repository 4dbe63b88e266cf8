/** Reads numbers and strings from the loaded beginning of a file. */
import { FileError } from "../../errors.js";

/** Thrown if a read needs bytes of the file that are not loaded yet. */
export class MoreBytes extends Error {
  constructor(readonly byteCount: number) {
    super(`${byteCount} bytes are needed`);
  }
}

/** A position in the first bytes of a file. `size` is the length of the file. All numbers are little endian. */
export class Cursor {
  position = 0;
  readonly #view: DataView;

  constructor(
    readonly path: string,
    private readonly bytes: Uint8Array,
    readonly size: number,
  ) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** The number of bytes to the end of the file. */
  get remainingBytes(): number {
    return this.size - this.position;
  }

  fail(reason: string): FileError {
    return new FileError(`${this.path}: ${reason}`);
  }

  /**
   * Advances by `count` bytes and returns the old position. Throws `FileError` if the file ends before that, `MoreBytes` if the
   * bytes are not loaded.
   */
  take(count: number, field: string): number {
    if (count > this.remainingBytes)
      throw this.fail(
        `${field} needs ${count} bytes at byte ${this.position}, and ${this.remainingBytes} are left; the file is truncated or damaged`,
      );
    if (this.position + count > this.bytes.length) throw new MoreBytes(this.position + count);
    const { position } = this;
    this.position += count;
    return position;
  }

  u32(field: string): number {
    return this.#view.getUint32(this.take(4, field), true);
  }

  /** Reads a count, a length or an offset. Throws `FileError` if it is 2^53 or more. */
  u64(field: string): number {
    const value = this.#view.getBigUint64(this.take(8, field), true);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw this.fail(`${field} is ${value}; no file has as much`);
    return Number(value);
  }

  /** A count of entries of at least `minBytes` bytes each. Throws `FileError` if the file is too short for them. */
  count(field: string, minBytes: number): number {
    const count = this.u64(field);
    if (count * minBytes > this.remainingBytes)
      throw this.fail(
        `${field} is ${count}; the ${this.remainingBytes} bytes that follow have no room for as many`,
      );
    return count;
  }

  /** Reads a string that follows its length. Throws `FileError` if the string is not UTF-8. */
  text(field: string): string {
    const [from, length] = this.skipText(field);
    return this.#decoded(from, length, field);
  }

  /** As `text`; a string of more than `maxBytes` bytes is not decoded, and its length is described instead. */
  shortText(field: string, maxBytes: number): string {
    const [from, length] = this.skipText(field);
    return length > maxBytes ? `text of ${length} bytes` : this.#decoded(from, length, field);
  }

  /** Skips a string; returns its position and length. */
  skipText(field: string): readonly [number, number] {
    const length = this.u64(`the length of ${field}`);
    return [this.take(length, field), length];
  }

  /** Reads a scalar of `size` bytes. */
  scalar<T>(size: number, field: string, read: (view: DataView, offset: number) => T): T {
    return read(this.#view, this.take(size, field));
  }

  #decoded(begin: number, length: number, field: string): string {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
        this.bytes.subarray(begin, begin + length),
      );
    } catch {
      throw this.fail(`${field} at byte ${begin} is not UTF-8; strings of GGUF files are`);
    }
  }
}
