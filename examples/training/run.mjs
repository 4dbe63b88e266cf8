/** The whole training demo: trains from each seed under each recipe, prints the table, draws the page. */
import { openBackend } from "lockstep";
import { digestOf } from "../shared/digest.mjs";
import { openProgress } from "../shared/progress.mjs";
import { headLines, rowLine } from "../shared/table.mjs";
import { failuresOf, rowOf } from "./compare.mjs";
import { loadDigits } from "./data.mjs";
import { writeTable } from "./document.mjs";
import { writePicture } from "./picture.mjs";
import { computeAll } from "./processes.mjs";
import { RECIPES } from "./recipes.mjs";
import { settingsOf } from "./settings.mjs";
import { COLUMNS, legend } from "./table.mjs";
import { NETWORK, stepsOf } from "./train.mjs";

/**
 * Trains, prints the table row by row, and writes DIRECTORY/training.html. Returns one sentence for each criterion that
 * fails.
 */
export async function runTraining(values) {
  const start = performance.now();
  const { training, heldBack } = loadDigits();
  const { run, epoch } = stepsOf(training);
  const settings = settingsOf(values, { steps: run, digits: heldBack.count });
  const { seeds, steps, digits, directory } = settings;
  const place = await placeOf(settings);
  console.log(`${training.count} digits to learn from, ${digits} held back; ${NETWORK}`);
  console.log(`${steps} steps under ${RECIPES.length} recipes from ${seeds} seeds; ${place.device}\n`);
  const { rows, runs } = await trainAll(settings, place.processes, epoch);
  const digest = digestOf(runs.map(({ losses }) => losses));
  const notes = legend({ count: digits, seeds, epoch: Math.min(epoch, steps) });
  const report = { rows, notes, digest, device: place.device, spent: spentOn(runs, start) };
  const path = writePicture(directory, report);
  console.log(`\n${notes.join("\n")}`);
  console.log(`\nevery loss of every step, SHA-256: ${digest}  (the same on any machine)`);
  console.log(`picture: ${path}  (${report.spent})`);
  if (settings.write) console.log(`table: ${writeTable(report)}`);
  return failuresOf(rows);
}

/** Determines where runs are computed: on a GPU by one process, on the CPU by several processes with one thread each. */
async function placeOf({ backend: name, processes }) {
  const backend = await openBackend(name, { threads: 1 });
  const { description } = backend;
  const count = backend.name === "wasm" ? processes : 1;
  await backend.dispose();
  return { processes: count, device: count > 1 ? `${count} processes, each ${description}` : description };
}

/** Prints each row of the table when it is complete. */
async function trainAll({ backend, seeds, steps, digits }, processes, epoch) {
  const seedsOf = Array.from({ length: seeds }, (_, i) => i + 1);
  const jobs = RECIPES.flatMap(({ name }) => seedsOf.map((seed) => ({ recipe: name, seed })));
  const runs = new Map();
  const rows = [];
  const progress = openProgress(jobs.length * steps);
  for (const line of headLines(COLUMNS)) progress.line(line);
  const runsOf = (recipe) => seedsOf.map((seed) => runs.get(`${recipe} ${seed}`));
  const printComplete = () => {
    for (
      let next = RECIPES[rows.length];
      next && runsOf(next.name).every(Boolean);
      next = RECIPES[rows.length]
    ) {
      rows.push(rowOf(next, runsOf(next.name), runsOf(RECIPES[0].name), epoch));
      progress.line(rowLine(COLUMNS, rows.at(-1)));
    }
  };
  try {
    await computeAll(
      jobs,
      processes,
      { backend, steps, digits },
      {
        onSteps: (count) => progress.advance(count),
        onRun({ recipe, seed }, run) {
          runs.set(`${recipe} ${seed}`, run);
          progress.note(`${recipe}, seed ${seed}: ${run.seconds.toFixed(1)} s`);
          printComplete();
        },
      },
    );
  } finally {
    progress.close();
  }
  return { rows, runs: jobs.map(({ recipe, seed }) => runs.get(`${recipe} ${seed}`)) };
}

function spentOn(runs, start) {
  const cpu = runs.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0);
  return `${((performance.now() - start) / 1000).toFixed(0)} s in all, ${cpu.toFixed(0)} s of processors`;
}
