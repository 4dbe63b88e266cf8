// The lower bound of a conversion's time: reads a file in pieces, and writes them or copies them in memory.
//     node copy.mjs read|"read and write"|memory|nothing FILE OUTPUT
import { closeSync, fsyncSync, openSync, readSync, writeSync } from "node:fs";

const PIECE = 4 << 20;
const [way, file, output] = process.argv.slice(2);
const from = openSync(file, "r");
const to = way === "read and write" ? openSync(output, "w") : undefined;
const piece = new Uint8Array(PIECE);
const other = new Uint8Array(PIECE);
if (way === "memory") {
  const { size } = await import("node:fs").then(({ fstatSync }) => fstatSync(from));
  for (let at = 0; at < size; at += PIECE) other.set(piece);
} else if (way !== "nothing") {
  for (;;) {
    const count = readSync(from, piece);
    if (count === 0) break;
    if (to !== undefined) writeSync(to, piece, 0, count);
  }
}
if (to !== undefined) {
  fsyncSync(to);
  closeSync(to);
}
closeSync(from);
