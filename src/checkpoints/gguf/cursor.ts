/** Reads numbers and texts from the beginning of a file, as far as it has been loaded. */
import { FileError } from "../../errors.js";

/** Thrown where bytes are needed that the file has and that have not been loaded. */
export class MoreBytes extends Error {
  constructor(readonly needed: number) {
    super(`${needed} bytes are needed`);
  }
}

/** A position in the first bytes of a file of `size` bytes. All numbers are little endian. */
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

  /** The bytes between here and the end of the file. */
  get rest(): number {
    return this.size - this.at;
  }

  fail(why: string): FileError {
    return new FileError(`${this.path}: ${why}`);
  }

  /** Goes `count` bytes on, and returns where it was. Throws `FileError` if the file has fewer, `MoreBytes` if less is loaded. */
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

  /** A count of things that have at least `least` bytes each. Throws `FileError` if the file has no room for them. */
  count(what: string, least: number): number {
    const count = this.u64(what);
    if (count * least > this.rest)
      throw this.fail(`${what} is ${count}; the ${this.rest} bytes that follow have no room for as many`);
    return count;
  }

  /** A text with its length before it. Throws `FileError` if it is not UTF-8. */
  text(what: string): string {
    const [from, length] = this.skipText(what);
    return this.#decoded(from, length, what);
  }

  /** The same; a text of more than `most` bytes is not decoded, and its length is told instead. */
  shortText(what: string, most: number): string {
    const [from, length] = this.skipText(what);
    return length > most ? `text of ${length} bytes` : this.#decoded(from, length, what);
  }

  /** Skips a text, and returns where it begins and its length. */
  skipText(what: string): readonly [number, number] {
    const length = this.u64(`the length of ${what}`);
    return [this.take(length, what), length];
  }

  /** A scalar of `size` bytes that `read` gets. */
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
