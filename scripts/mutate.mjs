/**
 * `npm run mutate -- src/tape`: plants bugs (mutants) in a folder's sources, one at a time, and lists the bugs that its tests do
 * not detect. Results are kept in out/mutate/, and a later run continues from them. CONTRIBUTING.md describes what to do with the
 * surviving mutants.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { compiler } from "./mutate/compiler.mjs";
import { instrument, KIND_NAMES } from "./mutate/mutators.mjs";
import { report } from "./mutate/report.mjs";
import { readState, versionOf } from "./mutate/state.mjs";
import { TESTS } from "./mutate/tests.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    // the time limits of one test in ms, one for each pass
    longest: { type: "string", default: "30,200,1000" },
    // the time limit in ms of all tests that a surviving mutant runs
    budget: { type: "string", default: "5000" },
    // usual: changes conditions and operators, and removes calls and fields; exchanges: confuses names, as in
    // mutate/exchanges.mjs
    kind: { type: "string", default: "usual" },
    // discards earlier results
    again: { type: "boolean", default: false },
    // runs only these mutants: their numbers, separated by commas
    only: { type: "string" },
    // runs only these test files, separated by commas
    tests: { type: "string" },
    // runs each surviving mutant in a new process, so that it is active while modules are loaded
    fresh: { type: "boolean", default: false },
    "no-loaded": { type: "boolean", default: false },
    // prints the survivors and runs nothing
    report: { type: "boolean", default: false },
  },
});
const [sources] = positionals;
if (!TESTS[sources]) {
  console.error(`mutate: name one of ${Object.keys(TESTS).join(", ")}`);
  process.exit(2);
}
if (!KIND_NAMES.includes(values.kind)) {
  console.error(`mutate: name one of ${KIND_NAMES.join(", ")} for --kind`);
  process.exit(2);
}
const folder = join("out/mutate", sources.replaceAll("/", "-"), values.kind);
if (values.again) rmSync(folder, { recursive: true, force: true });

/** A process without output for this many seconds is considered to hang. */
const HANGS = 20;

function filesOf(path) {
  if (statSync(path).isFile()) return [path];
  return readdirSync(path, { recursive: true })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => join(path, name))
    .sort();
}

/** Instruments the sources with mutants, unless that was done for the same sources. */
async function prepare() {
  const sourcesNow = filesOf(sources)
    .map((name) => `${name} ${versionOf(name)}`)
    .join("\n");
  const planted = `${folder}/sources`;
  if (existsSync(planted) && readFileSync(planted, "utf8") === sourcesNow) return;
  rmSync(folder, { recursive: true, force: true });
  const files = filesOf(sources).map((name) => ({ name, content: readFileSync(name, "utf8") }));
  const instrumented = await instrument(files, values.kind);
  for (const { name, content } of instrumented.files) {
    mkdirSync(dirname(`${folder}/files/${name}`), { recursive: true });
    writeFileSync(`${folder}/files/${name}`, content);
  }
  const text = new Map(files.map(({ name, content }) => [name, content.split("\n")]));
  const mutants = instrumented.mutants.map((mutant) => ({
    ...mutant,
    line: text.get(mutant.fileName)[mutant.location.start.line].trim(),
    original: cut(text.get(mutant.fileName), mutant.location),
  }));
  writeFileSync(`${folder}/mutants.json`, JSON.stringify(mutants));
  writeFileSync(planted, sourcesNow);
}

function cut(lines, { start, end }) {
  const within = lines.slice(start.line, end.line + 1);
  within[within.length - 1] = within.at(-1).slice(0, end.column);
  within[0] = within[0].slice(start.column);
  return within.join("\n");
}

let running;
for (const signal of ["SIGINT", "SIGTERM"])
  process.on(signal, () => {
    if (running) process.kill(-running, "SIGKILL");
    process.exit(130);
  });

/** Runs vitest until it ends, or until it has printed nothing for too long. */
function vitest(plan, environment = {}) {
  writeFileSync(`${folder}/plan.json`, JSON.stringify({ folder, ...plan }));
  writeFileSync(`${folder}/current`, "");
  const args = ["vitest", "run", "--config", "vitest.mutate.config.ts", "--reporter=dot"];
  const child = spawn("npx", args, {
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...environment, LOCKSTEP_MUTATION: `${folder}/plan.json` },
  });
  running = child.pid;
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (data) => {
      output = (output + data).slice(-20_000);
    });
  let [last, since, hung] = ["", Date.now(), false];
  const watch = setInterval(() => {
    const now = readFileSync(`${folder}/current`, "utf8") + statSync(`${folder}/current`).mtimeMs;
    if (now !== last) [last, since] = [now, Date.now()];
    else if (Date.now() - since > 1000 * HANGS + 5 * plan.longest) {
      hung = true;
      process.kill(-child.pid, "SIGKILL");
    }
  }, 500);
  return new Promise((resolve) => {
    child.on("close", (code) => {
      running = undefined;
      clearInterval(watch);
      resolve({ code, hung, output });
    });
  });
}

const log = (entry) => writeFileSync(`${folder}/log.jsonl`, `${JSON.stringify(entry)}\n`, { flag: "a" });

async function pass(longest) {
  const all = values.tests?.split(",") ?? TESTS[sources];
  let tests = all;
  for (let round = 1; tests.length > 0; round++) {
    const before = readState(folder);
    const { hung, output } = await vitest({
      tests,
      longest,
      budget: values.tests ? 1e9 : Number(values.budget),
      only: values.only?.split(","),
    });
    const state = readState(folder);
    const started = Date.now();
    const current = readFileSync(`${folder}/current`, "utf8").trim();
    const died = hung || /Worker exited unexpectedly|ERR_WORKER|Worker forks emitted error/.test(output);
    if (died && current) {
      const { id, mutant } = JSON.parse(current);
      if (mutant) log({ killed: mutant, by: id, error: hung ? "hangs" : "ends the process" });
      else log({ test: id, broken: hung ? "hangs" : "ends the process" });
      tests = all;
    } else {
      tests = [...new Set(state.again.slice(before.again.length))];
      if (state.tests.size === 0) throw new Error(`mutate: no test ran\n${output}`);
    }
    console.log(
      `${sources} up to ${longest} ms, round ${round}: ${state.killed.size} killed; ${tests.length} files again ${new Date(started).toISOString().slice(11, 19)}`,
    );
  }
}

/** Marks surviving mutants that do not compile. */
function compile() {
  const { killed, refused, compiles } = readState(folder);
  const left = new Map();
  for (const mutant of JSON.parse(readFileSync(`${folder}/mutants.json`, "utf8")))
    if (!killed.has(mutant.id) && !refused.has(mutant.id) && !compiles.has(mutant.id))
      left.set(mutant.fileName, [...(left.get(mutant.fileName) ?? []), mutant]);
  const check = compiler();
  // one mutant per file at a time, because the exported types of a file depend on its mutant
  for (let i = 0; [...left.values()].some((mutants) => i < mutants.length); i++) {
    const batch = [...left.values()].flatMap((mutants) => mutants[i] ?? []);
    for (const [n, error] of check(batch).entries())
      log(error ? { refused: batch[n].id, error } : { compiles: batch[n].id });
  }
}

async function statics(longest) {
  const state = readState(folder);
  const ids = new Map();
  for (const [file, mutants] of state.static)
    for (const mutant of mutants)
      if (!state.killed.has(mutant) && !state.refused.has(mutant))
        ids.set(mutant, [...(ids.get(mutant) ?? []), file]);
  if (values.fresh)
    for (const { id } of JSON.parse(readFileSync(`${folder}/mutants.json`, "utf8")))
      if (!state.killed.has(id) && !state.refused.has(id) && !ids.has(id)) ids.set(id, TESTS[sources]);
  const done = new Set(values.fresh ? [] : state.staticSurvived);
  console.log(
    `${sources}: ${[...ids.keys()].filter((id) => !done.has(id)).length} mutants of what modules do when they are loaded`,
  );
  const todo = [...ids].filter(([mutant]) => !done.has(mutant));
  const tests = values.tests?.split(",") ?? [...new Set(todo.flatMap(([, files]) => files))];
  if (todo.length > 0) await vitest({ tests, longest, unchanged: true });
  for (const [mutant, files] of todo) {
    const { code, hung, output } = await vitest(
      { tests: values.tests?.split(",") ?? files, longest, loaded: mutant },
      { __STRYKER_ACTIVE_MUTANT__: mutant },
    );
    if (code === 0 && !hung) log({ staticSurvived: mutant });
    else
      log({
        killed: mutant,
        by: "loaded",
        error: (/(?:Error|FAIL)[^\n]*/.exec(output)?.[0] ?? "").slice(0, 160),
      });
  }
}

await prepare();
if (!values.report) {
  const passes = values.longest.split(",").map(Number);
  for (const [i, longest] of passes.entries()) {
    await pass(longest);
    if (i === 0 && !values.tests) compile();
  }
  if (!values["no-loaded"]) await statics(passes[passes.length > 1 ? 1 : 0]);
}
process.exitCode = report(sources, folder, values.kind) ? 0 : 1;
