// Writes what is generated: from what the files of families export the lists of it, from assembly/contract.ts and the tables of
// formats and of native arguments their copies, from the committed vectors docs/conformance.md. The lists come first, since they
// are compiled. Then it builds, since it reads the tables as compiled: what an older dist/ has is not what the sources say.
// With --check, writes nothing and fails if a file differs from what it would write.
import { spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { listFiles } from "./generate/lists.mjs";

const COMMAND = "npm run generate";
const check = process.argv.includes("--check");

let stale = 0;
async function settle(files) {
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

await settle(listFiles(COMMAND));
const built = spawnSync("npm", ["run", "--silent", "build"], { stdio: ["ignore", "ignore", "inherit"] });
// what is generated is compiled too: where it is stale the compiler may complain of it, and still has written the tables
if (built.status !== 0 && check) process.exit(1);

const makers = [
  (await import("./generate/contract.mjs")).contractFiles,
  (await import("./generate/formats.mjs")).formatFiles,
  (await import("./generate/arguments.mjs")).argumentFiles,
  (await import("./generate/conformance.mjs")).conformanceFiles,
];
for (const make of makers) await settle(await make(COMMAND));
process.exitCode = stale > 0 ? 1 : 0;
