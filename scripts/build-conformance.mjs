// Writes dist/conformance/entry.js, which `import "lockstep/conformance"` finds: the names of dist/conformance/index.js, or a
// MissingPackageError where fast-check, an optional peer, is not installed. A module cannot catch what a static import of its own
// throws, so the entry imports dynamically; `require`, which takes no such module, finds index.js and Node's own error.
import { readFile, writeFile } from "node:fs/promises";
import * as published from "../dist/conformance/index.js";

const { peerDependencies } = JSON.parse(await readFile("package.json", "utf8"));
const need = `fast-check@${peerDependencies["fast-check"]}`;
const names = Object.keys(published);

await writeFile(
  "dist/conformance/entry.js",
  `import { MissingPackageError } from "../src/errors.js";
const published = await import("./index.js").catch((cause) => {
  if (!/fast-check/.test(cause?.message)) throw cause;
  throw new MissingPackageError("lockstep/conformance", [${JSON.stringify(need)}], { cause });
});
export const {\n${names.map((name) => `  ${name},\n`).join("")}} = published;
`,
);
process.stdout.write(`dist/conformance/entry.js: ${names.length} names\n`);
