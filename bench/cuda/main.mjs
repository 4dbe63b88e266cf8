// `npm run bench:cuda` measures the speed of the CUDA backend on device 0. Upper bounds to compare with, such as a
// device-to-device copy, are measured in the same run. Options: --write puts the tables into the documents; --json FILE
// writes all rows; --from FILE takes the rows of such a file instead of measuring; --quick runs few rounds; --only
// kernels|gemm|few-rows|rollout|attention|enqueue|training|engine|layers|experts|optimizers|offload runs one part; of layers,
// experts and optimizers, --no-graphs captures no step, and --alone compares with no other library.
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { Scope } from "lockstep";
import { writeSection } from "../../scripts/section.mjs";
import { attentionRows } from "./attention.mjs";
import { openCopies } from "./copy.mjs";
import { openDevice } from "./device.mjs";
import { enqueueRows } from "./enqueue.mjs";
import { expertRows } from "./experts.mjs";
import { fewRowsRows } from "./few-rows.mjs";
import { gemmRows, rolloutRows } from "./gemm.mjs";
import { kernelCases, SIZES } from "./kernels.mjs";
import { layerRows } from "./layers.mjs";
import { offloadRows } from "./offload.mjs";
import { optimizerRows } from "./optimizers.mjs";
import { engineRows } from "./te.mjs";
import { measureDevice } from "./timing.mjs";
import { trainingRows } from "./training.mjs";

const { values: flags } = parseArgs({
  options: {
    write: { type: "boolean" },
    quick: { type: "boolean" },
    json: { type: "string" },
    only: { type: "string" },
    from: { type: "string" },
    "no-graphs": { type: "boolean" },
    alone: { type: "boolean" },
  },
});
const asked = (part) => !flags.only || flags.only === part;

/** The bytes per second of each kernel, and their share of a device-to-device copy in the same rounds. */
function kernelRows(backend, copies, wait, rounds) {
  return SIZES.flatMap((size) => {
    const scope = new Scope();
    const cases = [copies.copyCase(size), ...kernelCases(backend, size)];
    const times = measureDevice(cases, wait, rounds);
    scope.dispose();
    const rate = (i) => cases[i].bytes / times[i].median / 1e9;
    return cases.map(({ name, wanted }, i) => ({
      name,
      "GB/s": rate(i),
      "of copy": rate(i) / rate(0),
      wanted,
    }));
  });
}

/** Measures the requested parts. Returns the rows of each table, and where and how they were measured. */
async function measured() {
  const rounds = flags.quick ? 3 : 11;
  const { backend, wait: waitForBackend } = await openDevice();
  const copies = openCopies();
  const wait = () => {
    waitForBackend();
    copies.wait();
  };
  const options = { graphs: !flags["no-graphs"], alone: flags.alone };
  const engine = asked("engine") ? await engineRows(backend, wait, rounds) : undefined;
  const layers = asked("layers") ? await layerRows(backend, wait, rounds, options) : undefined;
  const experts = asked("experts") ? await expertRows(backend, copies, wait, rounds, options) : {};
  const optimizers = asked("optimizers")
    ? await optimizerRows(backend, copies, wait, rounds, options)
    : undefined;
  const training = asked("training") ? trainingRows(backend, wait, rounds) : undefined;
  const attention = asked("attention") ? await attentionRows(backend, copies, wait, rounds) : {};
  const tables = {
    ...(asked("kernels") ? { kernels: kernelRows(backend, copies, wait, rounds) } : {}),
    ...(asked("gemm") ? { gemm: gemmRows(backend, wait, rounds) } : {}),
    ...(asked("few-rows") ? { "few rows": fewRowsRows(backend, copies, wait, rounds) } : {}),
    ...(asked("offload") ? { offload: offloadRows(backend, wait, rounds) } : {}),
    ...(asked("rollout") ? { rollout: rolloutRows(backend, wait, rounds) } : {}),
    ...attention,
    ...(training ? { training: training.steps, "training by operation": training.operations } : {}),
    ...(engine ? { engine } : {}),
    ...(layers ? { layers } : {}),
    ...experts,
    ...(optimizers ? { optimizers } : {}),
    ...(asked("enqueue") ? { enqueue: enqueueRows(backend, wait) } : {}),
  };
  copies.close();
  await backend.dispose();
  return { device: backend.description, rounds, command: commandOf(flags), tables };
}

/** The command that measures again and writes the documents. */
function commandOf({ only, ...others }) {
  const given = ["quick", "no-graphs", "alone"].filter((name) => others[name]).map((name) => `--${name}`);
  const options = [only && `--only ${only}`, ...given, "--write"];
  return `npm run bench:cuda -- ${options.filter(Boolean).join(" ")}`;
}

const results = flags.from ? JSON.parse(readFileSync(flags.from, "utf8")) : await measured();
const { device, rounds, command, tables } = results;

function cell(value) {
  if (typeof value !== "number") return value ?? "";
  return value >= 100 ? value.toFixed(0) : value.toFixed(2);
}

function markdown(rows) {
  const columns = Object.keys(rows[0]);
  const rule = columns.map((_, i) => (i === 0 ? "---" : "---:"));
  const lines = [columns, rule, ...rows.map((row) => columns.map((column) => cell(row[column])))];
  return lines.map((line) => `| ${line.join(" | ")} |\n`).join("");
}

/** The sections of the documents and their tables. Without TransformerEngine, its section stays unchanged. */
const SECTIONS = [
  { name: "docs/performance.md", section: "bench:cuda", titles: ["kernels", "gemm", "enqueue"] },
  {
    name: "docs/performance.md",
    section: "bench:attention",
    titles: ["attention", "attention with one query"],
  },
  { name: "docs/performance.md", section: "bench:engine", titles: ["engine"] },
  { name: "docs/performance.md", section: "bench:layers", titles: ["layers"] },
  { name: "docs/performance.md", section: "bench:experts", titles: ["experts", "permutations"] },
  { name: "docs/performance.md", section: "bench:optimizers", titles: ["optimizers"] },
  { name: "docs/performance.md", section: "bench:few-rows", titles: ["few rows"] },
  { name: "docs/training.md", section: "bench:offload", titles: ["offload"] },
  { name: "docs/rollout.md", section: "bench:rollout", titles: ["rollout"] },
  { name: "docs/training.md", section: "bench:cuda", titles: ["training", "training by operation"] },
];

function textOf(titles) {
  const origin = `${device}; medians of ${rounds} rounds; \`${command}\`:`;
  return `${origin}\n\n${titles.map((title) => markdown(tables[title])).join("\n")}`;
}

process.stdout.write(`${textOf(Object.keys(tables))}\n`);
// null keeps a column whose first cell is empty
const withNulls = (_, value) => value ?? null;
if (flags.json) await writeFile(flags.json, `${JSON.stringify(results, withNulls, 2)}\n`);
if (flags.write) {
  const complete = SECTIONS.filter(({ titles }) => titles.every((title) => title in tables));
  for (const { name, section, titles } of complete) writeSection(name, section, textOf(titles));
  process.stderr.write(
    `written: ${complete.map(({ name, section }) => `${section} of ${name}`).join(", ") || "none; --only left tables out"}\n`,
  );
}
