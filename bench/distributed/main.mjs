// `npm run bench:distributed [-- --ranks N --json FILE]` measures collective operations between GPUs, compared with direct calls
// of NCCL. It starts one process per GPU and prints a table of medians; the rounds of all rows are interleaved. `--what training`
// instead measures a training step of data parallelism, compared with the same step on one GPU, `--what tensor` one of tensor
// parallelism, `--what trace` prints when each part of a step of data parallelism ran, and `--what torch` measures the step of
// PyTorch's DistributedDataParallel and fully_shard in bf16; `--layers`, `--features`, `--hidden` and `--tokens` set its sizes.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { cudaDevices } from "../../dist/src/backends/open.js";

const { values } = parseArgs({
  options: {
    ranks: { type: "string" },
    json: { type: "string" },
    rounds: { type: "string" },
    what: { type: "string", default: "exchanges" },
    layers: { type: "string", default: "8" },
    features: { type: "string", default: "4096" },
    hidden: { type: "string", default: "16384" },
    tokens: { type: "string", default: "8192" },
  },
});
const gpus = cudaDevices().length;
const size = Number(values.ranks ?? gpus);
if (size < 2 || size > gpus) {
  process.stderr.write(
    `bench:distributed: ${size} ranks; at least 2 GPUs are needed, and ${gpus} are here\n`,
  );
  process.exit(1);
}
const port = 20_000 + (process.pid % 20_000);
const { rounds, layers, features, hidden, tokens } = values;
const PROGRAMS = {
  exchanges: [new URL("rank.mjs", import.meta.url), rounds ?? "15"],
  training: [new URL("training.mjs", import.meta.url), rounds ?? "7", layers, features, hidden, tokens],
  tensor: [new URL("tensor.mjs", import.meta.url), rounds ?? "7", layers, features, hidden, tokens],
  trace: [new URL("training.mjs", import.meta.url), "trace", layers, features, hidden, tokens],
  torch: [new URL("torch_parallel.py", import.meta.url), rounds ?? "7", layers, features, hidden, tokens],
};
const program = PROGRAMS[values.what];
if (!program) {
  process.stderr.write(
    `bench:distributed: --what ${values.what}; give exchanges, training, tensor, trace or torch\n`,
  );
  process.exit(1);
}
const [script, ...args] = program;
const ends = Array.from({ length: size }, (_, i) => {
  const env = {
    RANK: String(i),
    LOCAL_RANK: String(i),
    WORLD_SIZE: String(size),
    MASTER_ADDR: "127.0.0.1",
    MASTER_PORT: String(port),
    LOCKSTEP_JOB_TOKEN: `bench ${process.pid}`,
  };
  const child = spawn(
    script.pathname.endsWith(".py") ? "python3" : process.execPath,
    [script.pathname, ...args],
    {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  let text = "";
  child.stdout.on("data", (data) => {
    text += data;
  });
  return new Promise((resolve) => child.once("close", (status) => resolve({ status, text })));
});
const all = await Promise.all(ends);
const [first] = all;
process.stdout.write(values.what === "trace" ? all.map(({ text }) => text).join("") : first.text);
const last = first.text.trimEnd().split("\n").at(-1) ?? "";
if (values.json && last.startsWith("{")) writeFileSync(values.json, last);
process.exit(first.status ?? 1);
