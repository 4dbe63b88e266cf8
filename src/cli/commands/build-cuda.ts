/** `lockstep build-cuda`: compiles the addon of the CUDA backend inside the installed package. */
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { ArgumentError, BackendError } from "../../errors.js";
import { requirePackages } from "../../packages.js";
import { runChild } from "../child-group.js";
import { defineCommand } from "../command.js";
import { optional } from "../options.js";

const root = dirname(createRequire(import.meta.url).resolve("lockstep/package.json"));

/** A GPU architecture in the notation of CMake's CUDA_ARCHITECTURES. */
const ARCHITECTURE = /^(native|all|all-major|\d{2,3}[af]?(-real|-virtual)?)$/;

function architectures(text: string): string {
  if (text.split(";").every((each) => ARCHITECTURE.test(each))) return text;
  throw new ArgumentError(
    `"${text}" is not a list of architectures between semicolons, such as 90a-real;100a-real`,
  );
}

export const buildCuda = defineCommand({
  name: "build-cuda",
  summary: "compiles the addon of the CUDA backend; requires a CUDA 13 toolkit, CMake and a C++20 compiler",
  details: [
    "The toolkit is searched for in CUDA_HOME, on the PATH, in the usual folders and in NVIDIA's Python wheels. No GPU is needed. The messages of the compilers are printed on stderr.",
  ],
  example: "--architectures 90a-real",
  inputs: [],
  without: ["backend", "threads"],
  options: {
    architectures: optional({
      placeholder: "LIST",
      help: "GPU architectures, as in CMake's CUDA_ARCHITECTURES (default 89-real;90a-real;100a-real)",
      parse: architectures,
    }),
  },
  async run({ session, values: { architectures } }) {
    requirePackages("the build of the addon", "cmake-js", "node-addon-api");
    const architectureArgs = architectures === undefined ? [] : ["--architectures", architectures];
    const script = join(root, "scripts/build-cuda.mjs");
    // standard output is for results, so the compilers' messages go to standard error
    const status = await runChild(process.execPath, [script, ...architectureArgs]);
    if (status !== 0) throw new BackendError("the addon was not built; the messages above say why");
    session.result({ built: true }, ["built the addon of the CUDA backend; `lockstep info` shows the GPUs"]);
    return 0;
  },
});
