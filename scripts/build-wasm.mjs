// Compiles assembly/ to build/reference.wasm with its typed bindings, and embeds the binary as base64 in
// build/reference.binary.js, so that Node, bundlers and browsers load it the same way. Also writes the functions that put named
// arguments of the exports in order.
import { readFile, writeFile } from "node:fs/promises";
import asc from "assemblyscript/asc";
import { parametersOf } from "./parameters.mjs";

const { error, stderr } = await asc.main(["--config", "asconfig.json", "--target", "release"]);
if (error) {
  process.stderr.write(stderr.toString());
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
const wasm = await readFile("build/reference.wasm");
const { module, declarations } = parametersOf(await readFile("build/reference.d.ts", "utf8"));
const binary = `export const WASM_BASE64 = "${wasm.toString("base64")}";\n`;
await writeFile("build/reference.binary.js", `${module}${binary}`);
await writeFile("build/reference.binary.d.ts", `${declarations}export declare const WASM_BASE64: string;\n`);
process.stdout.write(`build/reference.wasm: ${wasm.length} bytes\n`);
