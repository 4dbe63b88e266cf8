// Writes dist/conformance/entry.js, which `import "lockstep/conformance"` resolves to. It exports the names of
// dist/conformance/index.js. If fast-check, an optional peer dependency, is not installed, it throws a MissingPackageError. The
// entry imports index.js dynamically, because a module cannot catch what a static import throws. `require` does not support such
// a module, so it resolves to index.js and gets Node's own error.
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
