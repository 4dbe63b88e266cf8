/** Standard input, output and error. Output is written synchronously, so that it is complete when the program ends. */
import { createReadStream, fstatSync, readSync, writeSync } from "node:fs";
import { Socket } from "node:net";
import { isatty } from "node:tty";
import { ArgumentError } from "../errors.js";
import { codeOf, fileError } from "../io/files.js";

const STDIN = 0;
export const STDOUT = 1;
export const STDERR = 2;

/** The time to wait if a non-blocking stream is full, in milliseconds. */
const RETRY_MS = 2;

/** Waits for RETRY_MS before a non-blocking stream is tried again. */
function pause(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
}

/** Streams that can no longer be written to. Their output is discarded. */
const closedStreams = new Set<number>();

/** Writes all of `text`, as `writeBytes` does. */
export function writeText(stream: typeof STDOUT | typeof STDERR, text: string): void {
  writeBytes(stream, new TextEncoder().encode(text));
}

/**
 * Writes all of `bytes`. If the reader of the stream has closed it, as `head` does, the remaining bytes are discarded and the run
 * continues with its normal exit status. A failure of standard error is ignored. Throws `FileError` if standard output fails for
 * another reason, such as a full disk.
 */
export function writeBytes(stream: typeof STDOUT | typeof STDERR, bytes: Uint8Array): void {
  for (let offset = 0; offset < bytes.length && !closedStreams.has(stream); ) {
    try {
      offset += writeSync(stream, bytes, offset);
    } catch (error) {
      const code = codeOf(error);
      if (code === "EAGAIN") pause();
      else if (code === "EPIPE" || stream === STDERR) closedStreams.add(stream);
      else throw fileError("standard output", "cannot be written", error);
    }
  }
}

/** The bytes of standard input. Throws `ArgumentError` if it is a terminal. */
export function readInput(): AsyncIterable<Uint8Array> {
  requireNoTerminal();
  const stat = fstatSync(STDIN);
  if (stat.isFIFO() || stat.isSocket()) return new Socket({ fd: STDIN, readable: true, writable: false });
  return createReadStream("", { fd: STDIN, autoClose: false, highWaterMark: 1 << 20 });
}

/** The maximum size of one read: the largest pipe buffer that Linux allows by default. */
const READ_BYTES = 1 << 20;

/** As `readInput`, but blocks this thread while it waits, which is faster. A chunk is valid until the next chunk is requested. */
export async function* readInputBlocking(): AsyncGenerator<Uint8Array, undefined> {
  requireNoTerminal();
  const buffer = new Uint8Array(READ_BYTES);
  for (;;) {
    const count = readSome(buffer);
    if (count === 0) return;
    yield buffer.subarray(0, count);
  }
}

/** The number of bytes read, at least 1; 0 at the end of the input. */
function readSome(buffer: Uint8Array): number {
  for (;;) {
    try {
      return readSync(STDIN, buffer, 0, buffer.length, null);
    } catch (error) {
      const code = codeOf(error);
      if (code === "EOF") return 0;
      if (code !== "EAGAIN") throw fileError("standard input", "cannot be read", error);
      pause();
    }
  }
}

function requireNoTerminal(): void {
  if (isatty(STDIN))
    throw new ArgumentError(
      "standard input is a terminal; another program has to send frames through a pipe",
    );
}
