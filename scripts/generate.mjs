// Writes the generated files: the lists of operations and quantizers, from the exports of the families' files; copies of
// assembly/contract.ts and of the tables of formats and native arguments; stand-ins of launchers; docs/conformance.md, from the
// committed vectors; and tables of other documents. The lists are written first, because they are compiled. Then the script
// runs the build, because it reads the compiled tables. With --check it writes nothing and fails if a file is stale.
import { spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { listFiles } from "./generate/lists.mjs";

const COMMAND = "npm run generate";
const check = process.argv.includes("--check");

let stale = 0;
async function update(files) {
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
}

await update(listFiles(COMMAND));
const built = spawnSync("npm", ["run", "--silent", "build"], { stdio: ["ignore", "ignore", "inherit"] });
// generated files are compiled too: if one is stale, the compiler may report errors, but it still emits the tables
if (built.status !== 0 && check) process.exit(1);

const makers = [
  (await import("./generate/contract.mjs")).contractFiles,
  (await import("./generate/formats.mjs")).formatFiles,
  (await import("./generate/arguments.mjs")).argumentFiles,
  (await import("./generate/conformance.mjs")).conformanceFiles,
  (await import("./generate/docs.mjs")).docFiles,
  (await import("./generate/stand-in.mjs")).standInFiles,
];
for (const make of makers) await update(await make(COMMAND));
process.exitCode = stale > 0 ? 1 : 0;
