// `npm run bench` measures the speed of the reference: medians of interleaved runs, and upper bounds (ceilings) to compare
// with, from the same run. Options: --json prints the rows as JSON; --write puts the table into docs/performance.md;
// --quick runs few rounds; --decode measures a decode step of a language model instead, in CPU time of one thread.

import { cpus } from "node:os";
import { openBackend, Scope } from "lockstep";
import { writeSection } from "../scripts/section.mjs";
import { attentionCases, decodeCases, encodeCases, gemmCases, PLACES, quantizeCases } from "./cases.mjs";
import { openKernels } from "./kernels.mjs";
import { cpu, measure } from "./timing.mjs";

const flags = new Set(process.argv.slice(2));
const rounds = flags.has("--quick") ? 3 : 15;
const quiet = flags.has("--json");
const say = (text) => quiet || process.stderr.write(`${text}\n`);

async function run() {
  const one = await openKernels();
  const scope = new Scope();
  const rows = [];
  for (const place of PLACES) {
    say(`encode and quantize, ${place.place}, one thread`);
    const cases = [...encodeCases(one.backend, one.pool, place), ...quantizeCases(one.backend, place)];
    rows.push(...withRatios(cases, measure(cases, rounds)));
  }
  const two = await openBackend("wasm", { threads: 2 });
  say("gemm, one thread and two");
  const doubles = gemmCases(two, 1024, "2 threads");
  const cases = gemmCases(one.backend, 1024, "1 thread").flatMap((single, i) => [
    single,
    { ...doubles[i], baseline: single.name },
  ]);
  rows.push(...withRatios(cases, measure(cases, Math.ceil(rounds / 3))));
  say("attention, one thread and two");
  const twice = attentionCases(two, 1024, "2 threads");
  const attentions = attentionCases(one.backend, 1024, "1 thread").flatMap((single, i) => [
    single,
    { ...twice[i], baseline: single.name },
  ]);
  rows.push(...withRatios(attentions, measure(attentions, Math.ceil(rounds / 3))));
  scope.dispose();
  await one.backend.dispose();
  await two.dispose();
  return rows;
}

async function runDecode() {
  const { backend } = await openKernels();
  const scope = new Scope();
  const cases = decodeCases(backend);
  const rows = withRatios(cases, measure(cases, rounds, cpu));
  scope.dispose();
  await backend.dispose();
  return rows;
}

/** Adds the ratios to the row's ceiling and baseline to each row. */
function withRatios(cases, rows) {
  const rate = (name) => rows.find((row) => row.name === name)?.median;
  return rows.map((row, i) => {
    const { ceiling, baseline } = cases[i];
    return {
      ...row,
      ...(ceiling ? { ceiling, ofCeiling: row.median / rate(ceiling) } : {}),
      ...(baseline ? { baseline, ofBaseline: row.median / rate(baseline) } : {}),
    };
  });
}

const number = (value, digits) => (value === undefined ? "" : value.toFixed(digits));

function table(rows) {
  const head =
    "| case | unit | median | best | of its ceiling | times its baseline |\n|---|---|---:|---:|---:|---:|\n";
  const line = (row) =>
    `| ${row.name} | ${row.unit} | ${number(row.median, 2)} | ${number(row.best, 2)} | ${number(row.ofCeiling, 2)} | ${number(row.ofBaseline, 2)} |`;
  return `${head}${rows.map(line).join("\n")}\n`;
}

const isDecode = flags.has("--decode");
const rows = await (isDecode ? runDecode() : run());
const host = { cpu: cpus()[0]?.model.trim(), node: process.version, rounds };
if (quiet) process.stdout.write(`${JSON.stringify({ host, rows }, null, 2)}\n`);
else process.stdout.write(`${host.cpu}, Node ${host.node}\n\n${table(rows)}`);
if (flags.has("--write")) {
  const [section, options] = isDecode ? ["decode", "--decode --write"] : ["bench", "--write"];
  const origin = `${host.cpu}, Node ${host.node}, ${rounds} rounds; \`npm run bench -- ${options}\`:`;
  writeSection("docs/performance.md", section, `${origin}\n\n${table(rows)}`);
}
