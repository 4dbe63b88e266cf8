// Writes what is generated: from assembly/contract.ts and the tables of formats and of native arguments their copies, from
// the committed vectors docs/conformance.md.
// With --check, writes nothing and fails if a file differs from what it would write.
import { readFile, writeFile } from "node:fs/promises";
import { argumentFiles } from "./generate/arguments.mjs";
import { conformanceFiles } from "./generate/conformance.mjs";
import { contractFiles } from "./generate/contract.mjs";
import { formatFiles } from "./generate/formats.mjs";

const COMMAND = "npm run generate";

const makers = [contractFiles, formatFiles, argumentFiles, conformanceFiles];
const files = Object.assign({}, ...(await Promise.all(makers.map((make) => make(COMMAND)))));

const check = process.argv.includes("--check");
let stale = 0;
for (const [path, wanted] of Object.entries(files)) {
  const found = await readFile(path, "utf8").catch(() => "");
  if (found === wanted) continue;
  if (check) {
    process.stderr.write(`${path} is not what \`${COMMAND}\` writes; run it\n`);
    stale++;
  } else {
    await writeFile(path, wanted);
    process.stdout.write(`wrote ${path}\n`);
  }
}
process.exitCode = stale > 0 ? 1 : 0;
