/** Reads frames from a stream of bytes. */
import { FileError } from "../../errors.js";
import { LENGTH_BYTES } from "../header/header-length.js";

/** The largest frame: less than the largest array of bytes that all supported versions of Node allow. */
export const MAX_FRAME_BYTES = 2 ** 32 - 2 ** 20;

/** A frame is read in steps of this many bytes, so that memory is allocated only as bytes arrive. */
const STEP_BYTES = 64 << 20;

/** Reads the frames of a stream one after another. */
export class FrameReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array();

  constructor(
    /** The sender of the frames, for errors. */
    readonly name: string,
    chunks: AsyncIterable<Uint8Array>,
  ) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /**
   * The bytes of the next frame, without its length; undefined at the end of the stream. Throws `FileError` for an impossible
   * length, and for a stream that ends within a frame.
   */
  async next(): Promise<Uint8Array | undefined> {
    const prefix = await this.#take(LENGTH_BYTES);
    if (prefix.length === 0) return undefined;
    if (prefix.length < LENGTH_BYTES) throw this.#truncated("a length", LENGTH_BYTES, prefix.length);
    const length = new DataView(prefix.buffer).getBigUint64(0, true);
    if (length > MAX_FRAME_BYTES)
      throw new FileError(
        `${this.name}: a frame would have ${length} bytes; ${MAX_FRAME_BYTES} are the most; does it begin with its length, 8 bytes, little endian?`,
      );
    const frame = await this.#take(Number(length));
    if (frame.length < length) throw this.#truncated("a frame", Number(length), frame.length);
    return frame;
  }

  #truncated(part: string, expected: number, received: number): FileError {
    return new FileError(`${this.name}: ended after ${received} of the ${expected} bytes of ${part}`);
  }

  /** Returns a copy of the next `count` bytes, or of fewer if the stream ends. */
  async #take(count: number): Promise<Uint8Array> {
    let bytes: Uint8Array = new Uint8Array(Math.min(count, STEP_BYTES));
    for (let offset = 0; offset < count; ) {
      if (this.#rest.length === 0 && !(await this.#refill())) return bytes.subarray(0, offset);
      const part = this.#rest.subarray(0, count - offset);
      if (offset + part.length > bytes.length)
        bytes = enlarge(bytes, Math.min(count, 2 * bytes.length + part.length));
      bytes.set(part, offset);
      this.#rest = this.#rest.subarray(part.length);
      offset += part.length;
    }
    return bytes;
  }

  async #refill(): Promise<boolean> {
    const { done, value } = await this.#chunks.next();
    if (done) return false;
    this.#rest = value;
    return true;
  }
}

function enlarge(bytes: Uint8Array, length: number): Uint8Array {
  const larger = new Uint8Array(length);
  larger.set(bytes);
  return larger;
}
