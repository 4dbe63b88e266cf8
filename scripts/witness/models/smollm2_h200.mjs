// Records the SHA-256 of the logits that a GPU computes while SmolLM2-135M-Instruct continues a prompt, for several forms of its
// weights and recipes:
//   node scripts/witness/models/smollm2_h200.mjs [cuda|wasm] > conformance/vectors/models/smollm2-h200.json
// It needs the built package, the model (scripts/fetch-model) and, for cuda, the addon. conformance/tests/witness/smollm2.test.ts
// computes the same hashes on the reference.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const model = `${process.env.LOCKSTEP_MODELS ?? `${root}.models`}/SmolLM2-135M-Instruct`;
if (!existsSync(model)) throw new Error(`${model} is not here; scripts/fetch-model downloads it`);

const [, , backend = "cuda"] = process.argv;
const run = ["--prompt", "The capital of France is", "--max-tokens", "24"];
const variants = [
  ...[[], ["--cache", "e4m3"]],
  ...["block", "mxfp8", "nvfp4"].map((recipe) => ["--recipe", recipe]),
  ...["modelopt-fp8", "deepseek-fp8-block", "ct-mxfp4", "ct-nvfp4"].map((form) => ["--weights", form]),
];

/** The result of `lockstep generate` with further options. */
function generate(options) {
  const words = ["generate", model, ...run, ...options, "--backend", backend, "--json"];
  return JSON.parse(
    execFileSync(process.execPath, [`${root}dist/src/cli/bin.js`, ...words], { encoding: "utf8" }),
  );
}

const rows = variants.map((options) => {
  const { backend: name, logitsSha256, text } = generate(options);
  return { backend: name, options, logitsSha256: logitsSha256.slice(0, 16), text };
});
const origin = backend === "cuda" ? "an H200 with CUDA 13.0 and cuBLASLt 13.1.0" : "the reference";
console.log(
  `{"origin":${JSON.stringify(origin)},"run":${JSON.stringify(run)},"variants":[\n${rows.map((row) => JSON.stringify(row)).join(",\n")}\n]}`,
);
