// Runs recorded runs of parallel training as processes and compares their hashes with the recorded ones:
// node scripts/parallel-runs.mjs [--backend wasm|cuda] [--ranks N] [--steps N] [--only TEXT]. With cuda every rank has a GPU. It
// exits with 0 if all are equal, with 1 if one is not, and with 2 if there is nothing to compare.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { compileHarness } from "./compile-harness.mjs";

const PROGRAM = fileURLToPath(new URL("../dist/src/cli/bin.js", import.meta.url));
/** The maximum number of runs in a job. Each run keeps its groups until the job ends. */
const RUNS_OF_JOB = 6;

/**
 * Starts a job of `ranks` processes that executes these runs, and returns the job's output about each. `timeoutMs` limits its
 * time.
 */
export async function runJob(program, { ranks, backend, steps, titles, timeoutMs }) {
  const args = [PROGRAM, "launch", "-n", String(ranks), program, backend, String(steps), ...titles];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text) => {
    stdout += text;
  });
  child.stderr.on("data", (text) => {
    stderr += text;
  });
  const timer = setTimeout(() => child.kill("SIGTERM"), timeoutMs);
  const [status] = await once(child, "close");
  clearTimeout(timer);
  const said = stdout.split("\n").flatMap((line) => (line.startsWith("{") ? JSON.parse(line) : []));
  return { status, said, stderr };
}

/** Ends the process with a message about its arguments. */
function refuse(reason) {
  process.stderr.write(`parallel-runs: ${reason}\n`);
  process.exit(2);
}

/** The options of the command line. */
function options() {
  const texts = { backend: "wasm", ranks: "4", steps: "10", only: "" };
  try {
    const types = Object.entries(texts).map(([name, text]) => [name, { type: "string", default: text }]);
    Object.assign(texts, parseArgs({ options: Object.fromEntries(types) }).values);
  } catch (error) {
    const [reason] = error.message.split("\n");
    refuse(`${reason}; give --backend wasm|cuda, --ranks N, --steps N or --only TEXT`);
  }
  const positiveInteger = (name) => {
    const number = Number(texts[name]);
    if (Number.isSafeInteger(number) && number > 0) return number;
    return refuse(`--${name} is ${texts[name]}; give a whole number from 1`);
  };
  const { backend, only } = texts;
  if (backend !== "wasm" && backend !== "cuda") refuse(`--backend is ${backend}; give wasm or cuda`);
  return { backend, only, ranks: positiveInteger("ranks"), steps: positiveInteger("steps") };
}

async function main() {
  const { backend, only, ranks: most, steps } = options();
  const program = await compileHarness("out/parallel-runs");
  const { loadParallelRuns, RECORDED_STEPS, planTitle } = await import(
    pathToFileURL(program.replace("rank-program", "parallel-recorded")).href
  );
  const { meshSize } = await import(pathToFileURL(program.replace("rank-program", "parallel")).href);
  const runs = loadParallelRuns().filter(
    (run) => meshSize(run.mesh) <= most && planTitle(run).includes(only),
  );
  if (steps > RECORDED_STEPS) refuse(`--steps is ${steps}; ${RECORDED_STEPS} are recorded`);
  if (runs.length === 0) refuse(`no recorded run of at most ${most} ranks has "${only}" in its title`);
  let failures = 0;
  console.log("run | hash | recorded | equal | transport");
  for (const ranks of new Set(runs.map((run) => meshSize(run.mesh)))) {
    const left = runs.filter((run) => meshSize(run.mesh) === ranks);
    while (left.length > 0) {
      const these = left.splice(0, RUNS_OF_JOB);
      const titles = these.map(planTitle);
      const job = { ranks, backend, steps, titles, timeoutMs: 30_000 + 60_000 * steps };
      const { said, stderr, status } = await runJob(program, job);
      for (const run of these) {
        const { hashes, transport } = said.find(({ title }) => title === planTitle(run)) ?? {};
        const recorded = run.hashes.slice(0, hashes?.length ?? 1);
        // a rank that fails after the last hash also fails the run
        const isEqual = status === 0 && hashes !== undefined && hashes.join() === recorded.join();
        if (!isEqual) failures++;
        console.log(
          [planTitle(run), hashes?.at(-1), recorded.at(-1), isEqual ? "yes" : "NO", transport].join(" | "),
        );
      }
      if (status !== 0) console.log(stderr.trimEnd());
    }
  }
  console.log(`${runs.length - failures} of ${runs.length} runs are as recorded`);
  if (failures > 0) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
