// Compiles assembly/ to build/reference.wasm, and embeds the binary as base64 in
// build/reference.binary.js, so that Node, bundlers and browsers load it the same way. Also writes the functions that pass named
// arguments of the exports, and their types. Does nothing if its inputs have not changed since it last succeeded.
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import asc from "assemblyscript/asc";
import { exportsOf, parametersOf } from "./parameters.mjs";
import { sourceHash } from "./source-hash.mjs";

const INPUTS = ["asconfig.json", "scripts/build-wasm.mjs", "scripts/parameters.mjs"];
const OUTPUTS = ["build/reference.wasm", "build/reference.binary.js", "build/reference.binary.d.ts"];
const KEY = "build/wasm.key";

const key = sourceHash(INPUTS);
if (OUTPUTS.every((path) => existsSync(path)) && existsSync(KEY) && readFileSync(KEY, "utf8") === key) {
  process.stdout.write("build/reference.wasm: its sources have not changed\n");
  process.exit(0);
}
rmSync(KEY, { force: true });
let exported;
class Signatures {
  afterCompile() {
    exported = exportsOf(this.program, "assembly/index.gen");
  }
}
const { error, stderr } = await asc.main(["--config", "asconfig.json", "--target", "release"], {
  transforms: [Signatures],
});
if (error) {
  process.stderr.write(stderr.toString());
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
const wasm = readFileSync("build/reference.wasm");
const { module, declarations } = parametersOf(exported);
const binary = `export const WASM_BASE64 = "${wasm.toString("base64")}";\n`;
writeFileSync("build/reference.binary.js", `${module}${binary}`);
writeFileSync("build/reference.binary.d.ts", `${declarations}export declare const WASM_BASE64: string;\n`);
writeFileSync(KEY, key);
process.stdout.write(`build/reference.wasm: ${wasm.length} bytes\n`);
