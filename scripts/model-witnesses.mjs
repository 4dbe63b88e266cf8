// Compares the logits of models with recorded ones of other programs, and writes the tables of docs/models.md. Needs the built
// package and SmolLM2-135M-Instruct.
//   node scripts/model-witnesses.mjs "$(scripts/fetch-model)"
import { readdir } from "node:fs/promises";
import { noGrad, openBackend, Scope, tensor } from "lockstep";
import { SafetensorsFile } from "lockstep/io";
import { loadCausalLM } from "lockstep/models";
import { writeSection } from "./section.mjs";

const FOLDER = new URL("../conformance/vectors/models/", import.meta.url).pathname;
const [smollm2] = process.argv.slice(2);
if (!smollm2)
  throw new Error('give the folder of SmolLM2: node scripts/model-witnesses.mjs "$(scripts/fetch-model)"');
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

/** The logarithm of the sum of exponentials. */
function logSumExp(values) {
  const most = values.reduce((a, b) => Math.max(a, b));
  return most + Math.log(values.reduce((sum, each) => sum + Math.exp(each - most), 0));
}

const recorded = await arraysOf(`${FOLDER}smollm2.safetensors`);
const { tokens, ids, f64 } = recorded;
const kept = ids.length / tokens.length;

/** The divergence of a position's distribution from the exact one, with all tokens that were not kept as one. */
function divergence(row, logits, lse) {
  const part = (all, total) =>
    Array.from(all.subarray(row * kept, (row + 1) * kept), (each) => Math.exp(each - total));
  const whole = (shares) => [...shares, Math.max(1 - shares.reduce((sum, each) => sum + each, 0), 1e-12)];
  const [p, q] = [whole(part(f64, recorded["f64.lse"][row])), whole(part(logits, lse[row]))];
  return p.reduce((sum, each, i) => sum + each * Math.log(each / q[i]), 0);
}

function cellsOf(program, { logits, lse, top }) {
  const positions = Array.from(tokens.keys());
  const kl = positions.reduce((sum, row) => sum + divergence(row, logits, lse), 0) / tokens.length;
  const same = positions.filter((row) => top[row] === ids[row * kept]).length;
  return [
    program,
    largest(errors(logits, f64)).toExponential(1),
    kl.toExponential(1),
    `${same} of ${tokens.length}`,
  ];
}

const others = [
  ["transformers, f32", "f32"],
  ["llama.cpp, f32 values", "llama"],
  ["llama.cpp, the file", "llama.q4_1"],
].map(([program, name]) =>
  cellsOf(
    program,
    Object.fromEntries(["logits", "lse", "top"].map((each) => [each, recorded[`${name}.${each}`]])),
  ),
);
const own = [];
for (const dtype of ["f32", "bf16"]) {
  const all = await logitsOf(smollm2, tokens, dtype);
  const vocabulary = all.length / tokens.length;
  const rowOf = (row) => all.subarray(row * vocabulary, (row + 1) * vocabulary);
  const each = Array.from(tokens.keys(), (row) => rowOf(row));
  own.push(
    cellsOf(`Lockstep, ${dtype}`, {
      logits: Float32Array.from(ids, (id, i) => each[Math.floor(i / kept)][id]),
      lse: each.map((logits) => logSumExp(logits)),
      top: each.map((logits) => logits.indexOf(logits.reduce((a, b) => Math.max(a, b)))),
    }),
  );
}
const real = table(["program", "largest error of a kept logit", "mean KL", "top-1"], [...others, ...own]);
await backend.dispose();
writeSection("docs/models.md", "families", families);
writeSection("docs/models.md", "smollm2", real);
