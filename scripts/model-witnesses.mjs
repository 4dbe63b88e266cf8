// Compares the logits of small models with those that transformers computed, and writes the table of docs/models.md. Needs the built
// package.
//   node scripts/model-witnesses.mjs
import { readdir } from "node:fs/promises";
import { noGrad, openBackend, Scope, tensor } from "lockstep";
import { SafetensorsFile } from "lockstep/io";
import { loadCausalLM } from "lockstep/models";
import { writeSection } from "./section.mjs";

const FOLDER = new URL("../conformance/vectors/models/", import.meta.url).pathname;
const ARRAYS = { I32: Int32Array, F32: Float32Array, F64: Float64Array };

/** The arrays of a safetensors file, by the names of its tensors. */
async function arraysOf(path) {
  const file = await SafetensorsFile.open(path);
  try {
    const entries = [...file.tensors];
    const bytes = await Promise.all(entries.map(([, entry]) => file.read(entry)));
    return Object.fromEntries(
      entries.map(([name, { dtype }], i) => [name, new ARRAYS[dtype](Uint8Array.from(bytes[i]).buffer)]),
    );
  } finally {
    await file.close();
  }
}

const backend = await openBackend("wasm", { datapath: "hopper" });

/** The logits of all positions. */
async function logitsOf(path, tokens, dtype) {
  const model = await loadCausalLM(backend, path, { dtype });
  const scope = new Scope();
  try {
    const ids = tensor(backend, tokens, [1, tokens.length], "i32");
    return noGrad(() => model.forward(ids).tensor.dataSync().slice());
  } finally {
    scope[Symbol.dispose]();
    model.dispose();
  }
}

const largest = (values) => values.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
const errors = (values, exact) => Array.from(values, (each, i) => each - exact[i]);
const table = (head, rows) =>
  [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |\n`).join("");

const folders = (await readdir(FOLDER, { withFileTypes: true })).filter((each) => each.isDirectory());
const rows = [];
for (const name of folders.map((each) => each.name).toSorted()) {
  const recorded = await arraysOf(`${FOLDER}${name}/witness.safetensors`);
  const exact = recorded["logits.f64"];
  const own = await logitsOf(`${FOLDER}${name}`, recorded.tokens, "f32");
  const [theirs, ours] = [recorded["logits.f32"], own].map((each) => largest(errors(each, exact)));
  rows.push([`\`${name}\``, largest(exact).toFixed(1), theirs.toExponential(1), ours.toExponential(1)]);
}
const families = table(
  ["model", "largest logit", "error of transformers in f32", "error of Lockstep in f32"],
  rows,
);

await backend.dispose();
writeSection("docs/models.md", "families", families);
