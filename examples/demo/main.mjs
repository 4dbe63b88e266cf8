/**
 * The demo: a small network classifies handwritten digits under every recipe.
 *
 *     node examples/demo/main.mjs [--backend wasm|cuda|auto] [--threads N] [--out DIR] [--recipe NAME] [--write]
 *
 * `--write` also writes docs/demo.svg, the figure of README.md. `--recipe` measures one recipe, and draws the figure only.
 */
import { parseArgs } from "node:util";
import { start } from "../shared/start.mjs";

function readOptions() {
  const { values } = parseArgs({
    options: {
      backend: { type: "string", default: "wasm" },
      threads: { type: "string" },
      out: { type: "string", default: "out" },
      recipe: { type: "string" },
      write: { type: "boolean", default: false },
    },
  });
  const threads = values.threads === undefined ? undefined : Number(values.threads);
  const { backend, out: directory, recipe, write } = values;
  return { backend, threads, directory, recipe, write };
}

await start("demo", async () => {
  const options = readOptions();
  const { runDemo } = await import("./run.mjs");
  await runDemo(options);
});
