/** Fine-tunes SmolLM2-135M-Instruct under a recipe; `--help` lists the options. */
import { readFile, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { start } from "../shared/start.mjs";

const HELP = `node examples/finetune/main.mjs [options]
npx lockstep launch -n 2 examples/finetune/main.mjs -- [options]

Trains the last layers of SmolLM2-135M-Instruct on a short text. Prints the recipe, the step, its loss, and a digest of the loss
and of all trained parameters, the same on every backend, in one process and in two. scripts/fetch-model downloads the model.

  --recipe NAME   bf16, block or mxfp8 (bf16)
  --steps N       the number of the last step (20)
  --backend NAME  wasm or cuda (wasm)
  --threads N     threads of a process on the CPU (1)
  --save FILE     saves the trained layers and the optimizer after the last step
  --resume FILE   continues from such a file
  --write         runs all recipes, records the digests, and writes the table into docs/models.md
  --help          this text`;

const OPTIONS = {
  recipe: { type: "string", default: "bf16" },
  steps: { type: "string", default: "20" },
  backend: { type: "string", default: "wasm" },
  threads: { type: "string", default: "1" },
  save: { type: "string" },
  resume: { type: "string" },
  write: { type: "boolean", default: false },
  help: { type: "boolean", default: false },
};

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const MODEL = join(process.env.LOCKSTEP_MODELS ?? join(ROOT, ".models"), "SmolLM2-135M-Instruct");
const TEXT = new URL("river.txt", import.meta.url);
const RECORDED = new URL("recorded.json", import.meta.url);

await start("finetune", async () => {
  const { values } = parseArgs({ options: OPTIONS });
  if (values.help) return console.log(HELP);
  const { openBackend } = await import("lockstep");
  const { localRank, openProcessGroup } = await import("lockstep/distributed");
  const { RECIPES } = await import("./train.mjs");
  for (const [name, allowed] of [
    ["recipe", Object.keys(RECIPES)],
    ["backend", ["wasm", "cuda"]],
  ])
    if (!allowed.includes(values[name]))
      throw usage(`--${name} is ${values[name]}; give ${allowed.join(", ")}`);
  const [steps, threads] = ["steps", "threads"].map((name) => wholeNumber(name, values[name]));
  const options = values.backend === "cuda" ? { device: localRank() } : { threads, datapath: "hopper" };
  const backend = await openBackend(values.backend, options);
  const group = await openProcessGroup(backend);
  try {
    if (values.write) await record(group, steps);
    else await run(group, { ...values, steps });
  } finally {
    await group.dispose();
    await backend.dispose();
  }
});

function usage(message) {
  return Object.assign(new Error(message), { code: "ARGUMENT" });
}

function wholeNumber(name, text) {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text);
  throw usage(`--${name} is ${text}; give a whole number from 1`);
}

/** Runs the steps up to `steps` and prints each of them. Returns their losses and digests. */
async function run(group, { recipe, steps, save, resume }) {
  const { Finetuning } = await import("./train.mjs");
  const training = await Finetuning.create(group, MODEL, await readFile(TEXT, "utf8"), recipe);
  const [losses, digests] = [[], []];
  try {
    if (resume) await training.resume(resume);
    while (training.step < steps) {
      const { loss, digest } = await training.advance();
      losses.push(loss);
      digests.push(digest);
      if (group.rank === 0) console.log(`${recipe} ${training.step} ${loss} ${digest}`);
    }
    if (save && group.rank === 0) await training.save(save);
  } finally {
    training.dispose();
  }
  return { losses, digests };
}

/** Runs all recipes, and writes the results into recorded.json and docs/models.md. */
async function record(group, steps) {
  const { RECIPES } = await import("./train.mjs");
  const { section } = await import("./table.mjs");
  const { writeSection } = await import("../../scripts/section.mjs");
  const runs = {};
  for (const recipe of Object.keys(RECIPES)) {
    const before = process.cpuUsage();
    const result = await run(group, { recipe, steps });
    const { user, system } = process.cpuUsage(before);
    runs[recipe] = { seconds: Math.round((user + system) / 1e6), ...result };
  }
  const recorded = { host: `${cpus()[0]?.model.trim()}, Node ${process.version}`, runs };
  await writeFile(RECORDED, `${JSON.stringify(recorded, null, 2)}\n`);
  writeSection("docs/models.md", "finetune", section(recorded));
}
