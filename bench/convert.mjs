// `npm run bench:convert -- --size MiB` measures `lockstep convert` on BF16 checkpoints of this size: MB of tensors read per
// second of CPU time, over all threads. It is compared with a copy of the same file by reads and writes, and with a copy in
// memory. Each conversion runs in a separate process; the start-up time, measured on a small checkpoint, is subtracted. "Of a
// copy" is the share of the CPU time of only reading and writing the same bytes in this run. Rounds are interleaved; rates are
// medians. Also measured: `lockstep compare --stats` of the checkpoint with itself and with a copy in which 1 % of the elements
// differ (MB of one of the two files), and `lockstep verify` of several forms. --only TEXT runs the cases whose name contains
// TEXT; --rounds N and --threads N set the numbers of rounds and threads; --folder PATH is for the files (default: the system's
// folder for temporary files); --json prints the rows as JSON; --write writes the table into docs/performance.md.

import { spawn } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { writeSafetensors } from "../dist/src/io/index.js";
import { writeSection } from "../scripts/section.mjs";
import { median } from "./timing.mjs";

const { values: options } = parseArgs({
  options: {
    size: { type: "string", default: "512" },
    rounds: { type: "string", default: "5" },
    only: { type: "string", default: "" },
    threads: { type: "string", default: "1" },
    folder: { type: "string", default: tmpdir() },
    json: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
  },
});

const CLI = fileURLToPath(new URL("../dist/src/cli/bin.js", import.meta.url));
const USAGE = new URL("usage.mjs", import.meta.url).href;
const COPY = fileURLToPath(new URL("copy.mjs", import.meta.url));
const SIDE = 4096;
const MIB = 2 ** 20;
/** The shape of the small checkpoint that measures the start-up time. */
const SMALL = [256, 256];

/** The conversions, and for each the conversion that makes its source from BF16. */
const CASES = [
  { from: "bf16", to: "ct-nvfp4" },
  { from: "bf16", to: "ct-mxfp8" },
  { from: "bf16", to: "deepseek-fp8-block" },
  { from: "deepseek-fp8-block", to: "ct-fp8-block" },
  { from: "ct-fp8-block", to: "deepseek-fp8-block" },
  { from: "ct-mxfp4", to: "deepseek-mxfp4" },
  { from: "ct-mxfp4", to: "torchao-mxfp4-rceil" },
  { from: "ct-nvfp4", to: "modelopt-nvfp4" },
  { from: "modelopt-nvfp4", to: "ct-nvfp4" },
  { from: "ct-nvfp4", to: "torchao-nvfp4-two-level" },
  { from: "modelopt-nvfp4", to: "torchao-nvfp4-two-level" },
  { from: "deepseek-ue8m0", to: "bf16" },
  { from: "deepseek-fp8-block", to: "bf16" },
  { from: "ct-mxfp4", to: "bf16" },
  { from: "ct-nvfp4", to: "bf16" },
].filter(({ from, to }) => `${from} to ${to}`.includes(options.only));

/** The forms on which `lockstep verify` is measured. */
const CHECKED = ["ct-nvfp4", "ct-mxfp4", "ct-mxfp8", "deepseek-fp8-block", "ct-fp8-channel"].filter((form) =>
  `verify ${form}`.includes(options.only),
);

/** Values distributed approximately as in a trained layer: a sum of four uniform draws, with a different scale in each row. */
function weight([rows, columns], seed) {
  const halves = new Uint16Array(rows * columns);
  const float = new Float32Array(1);
  const word = new Uint32Array(float.buffer);
  let state = seed | 1;
  for (let i = 0; i < halves.length; i++) {
    let sum = -2;
    for (let draw = 0; draw < 4; draw++) {
      state = (Math.imul(state, 1664525) + 1013904223) | 0;
      sum += (state >>> 0) / 2 ** 32;
    }
    float[0] = (sum * (1 + (Math.floor(i / columns) % 7))) / 64;
    halves[i] = word[0] >>> 16;
  }
  return new Uint8Array(halves.buffer);
}

/** Writes a checkpoint of linear layers in BF16. */
async function writeModel(folder, layers, shape) {
  const tensors = Array.from({ length: layers }, (_, layer) => ({
    name: `model.layers.${layer}.mlp.down_proj.weight`,
    dtype: "BF16",
    shape,
  }));
  // drawing each layer would take longer than measuring, so one draw is reused
  const bytes = weight(shape, 1);
  await writeSafetensors(
    join(folder, "model.safetensors"),
    { tensors, metadata: { format: "pt" } },
    async (put) => {
      for (const [layer, { name }] of tensors.entries()) {
        const cut = (bytes.length / 2 / tensors.length) * 2 * layer;
        const at = cut - (cut % 2);
        await put(name, bytes.subarray(at), 0);
        await put(name, bytes.subarray(0, at), bytes.length - at);
      }
    },
  );
  writeFileSync(
    join(folder, "config.json"),
    JSON.stringify({ model_type: "llama", torch_dtype: "bfloat16" }),
  );
}

/** The names of comparisons, and the share of differing elements. */
const COMPARISONS = [
  { name: "compare --stats, bf16, equal", share: 0 },
  { name: "compare --stats, bf16, 1 % differ", share: 0.01 },
].filter(({ name }) => name.includes(options.only));

/** Copies a checkpoint and flips the lowest bit of a share of its two-byte elements. */
function writeOther(from, to, share) {
  const [input, output] = [openSync(from, "r"), openSync(to, "w")];
  // in pieces, because a child's peak memory begins with its parent's
  const piece = new Uint8Array(4 * MIB);
  const head = new Uint8Array(8);
  readSync(input, head, 0, 8, 0);
  const begin = 8 + Number(new DataView(head.buffer).getBigUint64(0, true));
  let state = 1;
  for (let at = 0; ; ) {
    const count = readSync(input, piece);
    if (count === 0) break;
    for (let i = Math.max(0, begin - at); i < count; i += 2) {
      state = (Math.imul(state, 1664525) + 1013904223) | 0;
      if ((state >>> 0) / 2 ** 32 < share) piece[i] ^= 1;
    }
    writeSync(output, piece, 0, count);
    at += count;
  }
  closeSync(input);
  closeSync(output);
}

/** Runs a script in a separate process, and returns its CPU time and memory. */
function used(script, args, expectedStatus = 0) {
  return new Promise((resolve, reject) => {
    const begin = performance.now();
    const stdio = ["ignore", "ignore", "inherit", "pipe"];
    const child = spawn(process.execPath, ["--import", USAGE, script, ...args], { stdio });
    let text = "";
    child.stdio[3].on("data", (chunk) => {
      text += chunk;
    });
    child.on("close", (status) => {
      if (status !== expectedStatus) reject(new Error(`${args.join(" ")} ended with ${status}`));
      else resolve({ ...JSON.parse(text), wall: (performance.now() - begin) / 1000 });
    });
  });
}

async function converted(from, to, output) {
  const args = ["convert", from, "-o", output, "--to", to, "--backend", "wasm", "--threads", options.threads];
  const usage = await used(CLI, [...args, "--quiet"]);
  return usage;
}

const sizeOf = (folder) => statSync(join(folder, "model.safetensors")).size;

const root = mkdtempSync(join(options.folder, "lockstep-bench-"));
const rows = [];
try {
  const models = new Map();
  /** The large and the small checkpoint in a form. */
  const model = async (form) => {
    const existing = models.get(form);
    if (existing) return existing;
    const pair = { large: join(root, form), small: join(root, `${form}-small`) };
    models.set(form, pair);
    for (const [kind, folder] of Object.entries(pair)) {
      if (form !== "bf16") {
        await converted((await model("bf16"))[kind], form, folder);
        continue;
      }
      mkdirSync(folder);
      const large = kind === "large";
      const layers = large ? Math.max(1, Math.round((Number(options.size) * MIB) / (2 * SIDE * SIDE))) : 1;
      await writeModel(folder, layers, large ? [SIDE, SIDE] : SMALL);
    }
    return pair;
  };
  const output = join(root, "output");
  const runs = [];
  for (const { from, to } of CASES) {
    const { large, small } = await model(from);
    runs.push({
      name: `${from} to ${to}`,
      bytes: sizeOf(large),
      run: async () => ({ ...(await converted(large, to, output)), written: sizeOf(output) }),
      start: () => converted(small, to, output),
      each: [],
      starts: [],
    });
  }
  for (const form of CHECKED) {
    const { large, small } = await model(form);
    const verify = (folder) => () => used(CLI, ["verify", folder, "--quiet"]);
    runs.push({
      name: `verify ${form}`,
      bytes: sizeOf(large),
      run: verify(large),
      start: verify(small),
      each: [],
      starts: [],
    });
  }
  const { large, small } = await model("bf16");
  for (const [i, { name, share }] of COMPARISONS.entries()) {
    const compared = (folder) => {
      const [a, b] = [join(folder, "model.safetensors"), join(folder, `other-${i}.safetensors`)];
      writeOther(a, b, share);
      return () => used(CLI, ["compare", a, b, "--stats", "--quiet"], share === 0 ? 0 : 1);
    };
    const [run, start] = [compared(large), compared(small)];
    runs.push({ name, bytes: sizeOf(large), run, start, each: [], starts: [] });
  }
  const file = join(large, "model.safetensors");
  for (const name of ["read", "read and write", "memory"])
    runs.unshift({
      name: `copy: ${name}`,
      bytes: sizeOf(large),
      run: () => used(COPY, [name, file, output]),
      start: () => used(COPY, ["nothing", file, output]),
      each: [],
      starts: [],
    });
  for (let round = 0; round < Number(options.rounds); round++)
    for (const each of runs) {
      for (const [list, run] of [
        [each.starts, each.start],
        [each.each, each.run],
      ]) {
        list.push(await run());
        rmSync(output, { recursive: true, force: true });
      }
    }
  const beyond = ({ each, starts }, key = "cpu") =>
    median(each.map((one) => one[key])) - median(starts.map((one) => one[key]));
  const copies = Object.fromEntries(
    runs.filter(({ name }) => name.startsWith("copy")).map((each) => [each.name, beyond(each) / each.bytes]),
  );
  const reads = copies["copy: read"];
  const writes = copies["copy: read and write"] - reads;
  for (const { name, bytes, each, starts } of runs) {
    const medianOf = (list, key) => median(list.map((one) => one[key]));
    const cpu = beyond({ each, starts });
    const written = each[0].written;
    rows.push({
      name,
      MB: bytes / 1e6,
      start: medianOf(starts, "cpu"),
      cpu,
      kernel: beyond({ each, starts }, "system"),
      wall: beyond({ each, starts }, "wall"),
      rate: bytes / 1e6 / cpu,
      copy: written === undefined ? undefined : (bytes * reads + written * writes) / cpu,
      peakMiB: medianOf(each, "peak") / MIB,
    });
  }
} finally {
  rmSync(root, { recursive: true, force: true });
}

const HEAD = [
  "conversion",
  "MB read",
  "start, CPU s",
  "CPU s",
  "of it in the kernel",
  "wall s",
  "MB per CPU s",
  "of a copy",
  "peak MiB",
];

function table() {
  const lines = rows.map(({ name, MB, start, cpu, kernel, wall, rate, copy, peakMiB }) => [
    name,
    MB.toFixed(0),
    ...[start, cpu, kernel, wall].map((seconds) => seconds.toFixed(2)),
    rate.toFixed(0),
    copy === undefined ? "" : copy.toFixed(2),
    peakMiB.toFixed(0),
  ]);
  return [HEAD, ["---", ...HEAD.slice(1).map(() => "---:")], ...lines]
    .map((line) => `| ${line.join(" | ")} |\n`)
    .join("");
}

if (options.json) process.stdout.write(`${JSON.stringify(rows)}\n`);
else process.stdout.write(table());
if (options.write) {
  const { size, rounds, threads, folder } = options;
  const flags = `--size ${size} --rounds ${rounds} --threads ${threads}${folder === tmpdir() ? "" : ` --folder ${folder}`} --write`;
  const host = `${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.version}`;
  writeSection(
    "docs/performance.md",
    "bench:convert",
    `${host}; \`npm run bench:convert -- ${flags}\`:\n\n${table()}`,
  );
}
