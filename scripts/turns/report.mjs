// Reports which loops of the addon ran no second iteration in the GPU tests, and which branches went only one way:
//   node scripts/build-cuda.mjs --turns
//   TURNS=out/turns LOCKSTEP_ADDON=$PWD/build/turns/build/Release/lockstep.node npx vitest run --project gpu
//   node scripts/turns/report.mjs out/turns
// Fails if a loop ran no second iteration and exceptions.mjs has no reason for it, or if exceptions.mjs lists a loop
// that did.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { EXCEPTIONS } from "./exceptions.mjs";
import { tally, verdict } from "./verdict.mjs";

const [folder, table = "build/turns/sites.json"] = process.argv.slice(2);
if (!folder) {
  process.stderr.write("turns: name the folder that TURNS named\n");
  process.exit(2);
}
const sites = JSON.parse(readFileSync(table, "utf8"));
const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
const marks = files.map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")));
const { missing, stale, branches, loops } = verdict(sites, tally(sites, marks), EXCEPTIONS);
const print = (line) => process.stdout.write(`${line}\n`);
const show = ({ file, line, text, units }) => `  ${file}:${line}: ${text}${units ? ` (in ${units})` : ""}`;

print(`turns: ${loops} loops, marks of ${files.length} test files`);
print(`turns: ${branches.length} branches went one way only`);
for (const each of branches) print(`${show(each)}: ${each.way}`);
print(`turns: ${missing.length} loops took no second turn`);
for (const each of missing) print(show(each));
print(`turns: ${stale.length} exceptions are none`);
for (const each of stale) print(show(each));
process.exit(missing.length + stale.length > 0 || files.length === 0 ? 1 : 0);
