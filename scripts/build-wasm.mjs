// Compiles assembly/ to build/reference.wasm with its typed bindings, and embeds the binary as base64 in
// build/reference.binary.js, so that Node, bundlers and browsers load it the same way. Also writes the functions that put named
// arguments of the exports in order. Does nothing if its inputs have not changed since it last succeeded.
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import asc from "assemblyscript/asc";
import { parametersOf } from "./parameters.mjs";
import { sourceHash } from "./source-hash.mjs";

const INPUTS = ["asconfig.json", "scripts/build-wasm.mjs", "scripts/parameters.mjs"];
const OUTPUTS = [
  "build/reference.wasm",
  "build/reference.js",
  "build/reference.d.ts",
  "build/reference.binary.js",
  "build/reference.binary.d.ts",
];
const KEY = "build/wasm.key";

const key = sourceHash(INPUTS);
if (OUTPUTS.every((path) => existsSync(path)) && existsSync(KEY) && readFileSync(KEY, "utf8") === key) {
  process.stdout.write("build/reference.wasm: its sources have not changed\n");
  process.exit(0);
}
rmSync(KEY, { force: true });
const { error, stderr } = await asc.main(["--config", "asconfig.json", "--target", "release"]);
if (error) {
  process.stderr.write(stderr.toString());
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
const wasm = readFileSync("build/reference.wasm");
const { module, declarations } = parametersOf(readFileSync("build/reference.d.ts", "utf8"));
const binary = `export const WASM_BASE64 = "${wasm.toString("base64")}";\n`;
writeFileSync("build/reference.binary.js", `${module}${binary}`);
writeFileSync("build/reference.binary.d.ts", `${declarations}export declare const WASM_BASE64: string;\n`);
writeFileSync(KEY, key);
process.stdout.write(`build/reference.wasm: ${wasm.length} bytes\n`);
