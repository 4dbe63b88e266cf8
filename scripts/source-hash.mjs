// A hash of everything that a compiled module of the reference depends on. build/ stores the module under this key.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Returns the SHA-256 of the sources of assembly/, of the compiler's version and of further files.
 * @param {readonly string[]} files
 * @returns {string}
 */
export function sourceHash(files) {
  const sources = readdirSync("assembly", { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .sort();
  const hash = createHash("sha256");
  for (const path of [...sources, "node_modules/assemblyscript/package.json", ...files])
    hash.update(`${path}\0`).update(readFileSync(path)).update("\0");
  return hash.digest("hex");
}
