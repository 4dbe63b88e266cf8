/** Standard output and standard error, written at once: what was said is there when the program ends, whoever reads it. */
import { writeSync } from "node:fs";
import { fileError } from "../io/files.js";

export const STDOUT = 1;
export const STDERR = 2;

/** How long to wait where a stream that does not block is full. */
const RETRY_MS = 2;

/** Streams whose reader has gone: what is written to them is lost, and nothing else changes. */
const gone = new Set<number>();

/**
 * Writes all of `text`. A reader that has seen enough, `head` for one, does not end the run: the rest is not shown and the exit
 * status is what it would have been. Standard error never fails. Throws `FileError` where standard output takes nothing for
 * another reason, a full disk for one.
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
