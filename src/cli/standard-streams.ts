/**
 * Standard input, output and error. Output is written synchronously, so that all of it is written when the program ends.
 */
import { createReadStream, fstatSync, writeSync } from "node:fs";
import { Socket } from "node:net";
import { isatty } from "node:tty";
import { ArgumentError } from "../errors.js";
import { fileError } from "../io/files.js";

const STDIN = 0;
export const STDOUT = 1;
export const STDERR = 2;

/** The time to wait if a non-blocking stream is full, in milliseconds. */
const RETRY_MS = 2;

/** Streams that can no longer be written to. What is written to them is discarded. */
const gone = new Set<number>();

/** Writes all of `text`, as `writeBytes` does. */
export function writeText(stream: typeof STDOUT | typeof STDERR, text: string): void {
  writeBytes(stream, new TextEncoder().encode(text));
}

/**
 * Writes all of `bytes`. If the reader of the stream has closed it, as `head` does, the rest is discarded and the run continues
 * with its normal exit status. A failure of standard error is ignored. Throws `FileError` if standard output fails for another
 * reason, such as a full disk.
 */
export function writeBytes(stream: typeof STDOUT | typeof STDERR, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length && !gone.has(stream); ) {
    try {
      at += writeSync(stream, bytes, at);
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : undefined;
      if (code === "EAGAIN") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
      else if (code === "EPIPE" || stream === STDERR) gone.add(stream);
      else throw fileError("standard output", "cannot be written", error);
    }
  }
}

/** The bytes of standard input. Throws `ArgumentError` if it is a terminal. */
export function readInput(): AsyncIterable<Uint8Array> {
  if (isatty(STDIN))
    throw new ArgumentError(
      "standard input is a terminal; another program has to send frames through a pipe",
    );
  const stat = fstatSync(STDIN);
  if (stat.isFIFO() || stat.isSocket()) return new Socket({ fd: STDIN, readable: true, writable: false });
  return createReadStream("", { fd: STDIN, autoClose: false, highWaterMark: 1 << 20 });
}
