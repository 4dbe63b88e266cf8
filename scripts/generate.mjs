// Writes the generated files: every layer of the elementwise operators, from their table; lowerings
// that operations declare; the lists of operations and quantizers,
// from the exports of the families' files; copies of assembly/contract.ts and of the tables of formats and native arguments;
// stand-ins of launchers; docs/conformance.md, from the committed vectors; and tables of other documents. Everything is read from
// sources, so nothing has to be built first. Exits 1 if a source does not parse, or if the sources do not compile with the
// written files. With --check the script writes and compiles nothing, and exits 1 if a file is stale.
import { spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { argumentFiles } from "./generate/arguments.mjs";
import { conformanceFiles } from "./generate/conformance.mjs";
import { contractFiles } from "./generate/contract.mjs";
import { formatFiles } from "./generate/formats.mjs";
import { kernelFiles } from "./generate/kernels.mjs";
import { listFiles } from "./generate/lists.mjs";
import { loweringFiles } from "./generate/lowerings.mjs";
import { operatorFiles } from "./generate/operators.mjs";
import { packingFiles } from "./generate/packing.mjs";
import { specialFunctionFiles } from "./generate/special-functions.mjs";
import { standInFiles } from "./generate/stand-in.mjs";
import { wgmmaFiles } from "./generate/wgmma.mjs";

const COMMAND = "npm run generate";
const check = process.argv.includes("--check");

let stale = 0;
async function update(files) {
  for (const [path, content] of Object.entries(files)) {
    const current = await readFile(path, "utf8").catch(() => "");
    if (current === content) continue;
    if (check) {
      process.stderr.write(`${path} is not what \`${COMMAND}\` writes; run it\n`);
      stale++;
    } else {
      await writeFile(path, content);
      process.stdout.write(`wrote ${path}\n`);
    }
  }
}

// The order matters: a generator reads files that the generators before it write.
const GENERATORS = [
  operatorFiles,
  loweringFiles,
  listFiles,
  contractFiles,
  formatFiles,
  specialFunctionFiles,
  argumentFiles,
  packingFiles,
  kernelFiles,
  conformanceFiles,
  standInFiles,
  wgmmaFiles,
];
for (const generate of GENERATORS) await update(await generate(COMMAND));
// docs.mjs reads tables when it is loaded
const { docFiles } = await import("./generate/docs.mjs");
await update(await docFiles(COMMAND));
if (check) process.exit(stale > 0 ? 1 : 0);
const { status } = spawnSync("npm", ["run", "--silent", "tsc", "--", "-p", "tsconfig.check.json"], {
  stdio: "inherit",
});
process.exit(status ?? 1);
