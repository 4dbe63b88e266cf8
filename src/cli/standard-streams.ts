/** Standard output and standard error, written synchronously, so that all text is written when the program ends. */
import { writeSync } from "node:fs";
import { fileError } from "../io/files.js";

export const STDOUT = 1;
export const STDERR = 2;

/** The time to wait if a non-blocking stream is full, in milliseconds. */
const RETRY_MS = 2;

/** Streams that can no longer be written to. Text for them is discarded. */
const gone = new Set<number>();

/**
 * Writes all of `text`. If the reader of the stream has closed it, as `head` does, the rest is discarded and the run continues
 * with its normal exit status. A failure of standard error is ignored. Throws `FileError` if standard output fails for another
 * reason, such as a full disk.
 */
export function writeText(stream: typeof STDOUT | typeof STDERR, text: string): void {
  const bytes = new TextEncoder().encode(text);
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
