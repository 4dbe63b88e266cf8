/** Reads numbers and strings from the loaded beginning of a file. */
import { FileError } from "../../errors.js";

/** Thrown if a read needs bytes of the file that are not loaded yet. */
export class MoreBytes extends Error {
  constructor(readonly needed: number) {
    super(`${needed} bytes are needed`);
  }
}

/** A position in the first bytes of a file. `size` is the length of the file. All numbers are little endian. */
export class Cursor {
  at = 0;
  readonly #view: DataView;

  constructor(
    readonly path: string,
    private readonly bytes: Uint8Array,
    readonly size: number,
  ) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** The number of bytes to the end of the file. */
  get rest(): number {
    return this.size - this.at;
  }

  fail(why: string): FileError {
    return new FileError(`${this.path}: ${why}`);
  }

  /**
   * Advances by `count` bytes and returns the old position. Throws `FileError` if the file ends before that, `MoreBytes` if the
   * bytes are not loaded.
   */
  take(count: number, what: string): number {
    if (count > this.rest)
      throw this.fail(
        `${what} needs ${count} bytes at byte ${this.at}, and ${this.rest} are left; the file is truncated or damaged`,
      );
    if (this.at + count > this.bytes.length) throw new MoreBytes(this.at + count);
    const { at } = this;
    this.at += count;
    return at;
  }

  u32(what: string): number {
    return this.#view.getUint32(this.take(4, what), true);
  }

  /** A count, a length or an offset. Throws `FileError` if it is 2^53 or more. */
  u64(what: string): number {
    const value = this.#view.getBigUint64(this.take(8, what), true);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw this.fail(`${what} is ${value}; no file has as much`);
    return Number(value);
  }

  /** A count of entries of at least `least` bytes each. Throws `FileError` if the file is too short for them. */
  count(what: string, least: number): number {
    const count = this.u64(what);
    if (count * least > this.rest)
      throw this.fail(`${what} is ${count}; the ${this.rest} bytes that follow have no room for as many`);
    return count;
  }

  /** A string with its length in front. Throws `FileError` if it is not UTF-8. */
  text(what: string): string {
    const [from, length] = this.skipText(what);
    return this.#decoded(from, length, what);
  }

  /** As `text`; a string of more than `most` bytes is not decoded, and its length is described instead. */
  shortText(what: string, most: number): string {
    const [from, length] = this.skipText(what);
    return length > most ? `text of ${length} bytes` : this.#decoded(from, length, what);
  }

  /** Skips a string; returns its position and length. */
  skipText(field: string): readonly [number, number] {
    const length = this.u64(`the length of ${field}`);
    return [this.take(length, field), length];
  }

  /** Reads a scalar of `size` bytes. */
  scalar<T>(size: number, what: string, read: (view: DataView, at: number) => T): T {
    return read(this.#view, this.take(size, what));
  }

  #decoded(from: number, length: number, what: string): string {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
        this.bytes.subarray(from, from + length),
      );
    } catch {
      throw this.fail(`${what} at byte ${from} is not UTF-8; strings of GGUF files are`);
    }
  }
}
