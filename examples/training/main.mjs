/** Trains a small network on handwritten digits under every recipe; `--help` lists the options. */
import { parseArgs } from "node:util";
import { start } from "../shared/start.mjs";

const HELP = `npm run demo:train -- [options]

Trains a small network on handwritten digits under every recipe from several seeds, and compares accuracy with bf16.
Exit code: 0, 1 where a recipe misses its criterion or something fails, 2 for bad usage.

  --backend NAME  wasm, cuda or auto (wasm); all give the same bits
  --threads N     processes on the CPU, one run each at a time (as many as there are cores)
  --out DIR       where training.html goes (out)
  --seeds N       seeds 1 to N (3)
  --write         puts the table into docs/training.md; of a whole run only
  --steps N       steps of a run (496, four epochs)
  --digits N      held-back digits that are asked about, a multiple of 32 (2048)
  --help          this text`;

const OPTIONS = {
  backend: { type: "string", default: "wasm" },
  threads: { type: "string" },
  out: { type: "string", default: "out" },
  seeds: { type: "string", default: "3" },
  write: { type: "boolean", default: false },
  steps: { type: "string" },
  digits: { type: "string" },
  help: { type: "boolean", default: false },
};

await start("demo:train", async () => {
  const { values } = parseArgs({ options: OPTIONS });
  if (values.help) return console.log(HELP);
  const { runTraining } = await import("./run.mjs");
  const failures = await runTraining(values);
  for (const failure of failures) console.error(`demo:train: ${failure}`);
  if (failures.length > 0) process.exitCode = 1;
});
