// `npm run bench:cuda` measures the speed of the CUDA backend on device 0. Upper bounds to compare with, such as a
// device-to-device copy, are measured in the same run. Options: --write puts the tables into the documents; --json FILE
// writes all rows; --quick runs few rounds; --only kernels|gemm|attention|enqueue|training|engine runs one part.
import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { Scope } from "lockstep";
import { writeSection } from "../../scripts/section.mjs";
import { attentionRows } from "./attention.mjs";
import { openCopies } from "./copy.mjs";
import { openDevice } from "./device.mjs";
import { enqueueRows } from "./enqueue.mjs";
import { gemmRows } from "./gemm.mjs";
import { kernelCases, SIZES } from "./kernels.mjs";
import { engineRows } from "./te.mjs";
import { measureDevice } from "./timing.mjs";
import { trainingRows } from "./training.mjs";

const { values: flags } = parseArgs({
  options: {
    write: { type: "boolean" },
    quick: { type: "boolean" },
    json: { type: "string" },
    only: { type: "string" },
  },
});
const rounds = flags.quick ? 3 : 11;
const asked = (part) => !flags.only || flags.only === part;
const { backend, wait: waitForBackend } = await openDevice();
const copies = openCopies();
const wait = () => {
  waitForBackend();
  copies.wait();
};

/** The bytes per second of each kernel, and their share of a device-to-device copy in the same rounds. */
function kernelRows() {
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

const engine = asked("engine") ? await engineRows(backend, wait, rounds) : undefined;
const training = asked("training") ? trainingRows(backend, wait, rounds) : undefined;
const attention = asked("attention") ? await attentionRows(backend, copies, wait, rounds) : {};
const tables = {
  ...(asked("kernels") ? { kernels: kernelRows() } : {}),
  ...(asked("gemm") ? { gemm: gemmRows(backend, wait, rounds) } : {}),
  ...attention,
  ...(training ? { training: training.steps, "training by operation": training.operations } : {}),
  ...(engine ? { engine } : {}),
  ...(asked("enqueue") ? { enqueue: enqueueRows(backend, wait) } : {}),
};

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
  { name: "docs/training.md", section: "bench:cuda", titles: ["training", "training by operation"] },
];

function textOf(titles) {
  const options = `${flags.only ? `--only ${flags.only} ` : ""}${flags.quick ? "--quick " : ""}`;
  const command = `npm run bench:cuda -- ${options}--write`;
  const origin = `${backend.description}; medians of ${rounds} rounds; \`${command}\`:`;
  return `${origin}\n\n${titles.map((title) => markdown(tables[title])).join("\n")}`;
}

process.stdout.write(`${textOf(Object.keys(tables))}\n`);
if (flags.json)
  await writeFile(
    flags.json,
    `${JSON.stringify({ device: backend.description, rounds, tables }, null, 2)}\n`,
  );
if (flags.write) {
  const measured = SECTIONS.filter(({ titles }) => titles.every((title) => title in tables));
  for (const { name, section, titles } of measured) writeSection(name, section, textOf(titles));
  process.stderr.write(
    `written: ${measured.map(({ name, section }) => `${section} of ${name}`).join(", ") || "none; --only left tables out"}\n`,
  );
}
copies.close();
await backend.dispose();
