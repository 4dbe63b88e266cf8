/**
 * The main job on real input: handwritten digits through a small network under every recipe.
 *
 *     node examples/demo/main.mjs [--backend wasm|cuda|auto] [--threads N] [--out DIR]
 */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const BAD_USAGE = 2;

function readOptions() {
  const { values } = parseArgs({
    options: {
      backend: { type: "string", default: "wasm" },
      threads: { type: "string" },
      out: { type: "string", default: "out" },
    },
  });
  const threads = values.threads === undefined ? undefined : Number(values.threads);
  return { backend: values.backend, threads, directory: values.out };
}

if (!existsSync(fileURLToPath(import.meta.resolve("lockstep")))) {
  console.error("demo: the package is not built; run `npm run build` first");
  process.exit(BAD_USAGE);
}
try {
  const options = readOptions();
  const { runDemo } = await import("./run.mjs");
  await runDemo(options);
} catch (error) {
  const isUsage = String(error.code).startsWith("ERR_PARSE_ARGS") || error.code === "ARGUMENT";
  console.error(`demo: ${error.message}`);
  process.exitCode = isUsage ? BAD_USAGE : 1;
}
