/** `lockstep build-cuda`: compiles the addon of the CUDA backend, in place. */
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { BackendError } from "../errors.js";
import { defineCommand } from "./command.js";
import { optional } from "./options.js";

const root = dirname(createRequire(import.meta.url).resolve("lockstep/package.json"));

export const buildCuda = defineCommand({
  name: "build-cuda",
  summary: "compiles the addon of the CUDA backend, where a CUDA 13 toolkit, CMake and a C++20 compiler are",
  details: [
    "The toolkit is looked for in CUDA_HOME, on the PATH, in the usual folders and in NVIDIA's Python wheels. No GPU is needed to compile. The compilers' messages go to stderr.",
  ],
  inputs: [],
  options: {
    architectures: optional({
      placeholder: "LIST",
      help: "for which GPUs, as CMake lists them (default 89-real;90a-real;100a-real)",
      parse: (text) => text,
    }),
  },
  async run({ session, values: { architectures } }) {
    const chosen = architectures === undefined ? [] : ["--architectures", architectures];
    const script = join(root, "scripts/build-cuda.mjs");
    const status = await new Promise<number | null>((resolve, reject) => {
      // stdout is for results: what the compilers say goes where errors go
      const child = spawn(process.execPath, [script, ...chosen], { stdio: ["ignore", 2, 2] });
      child.on("error", reject);
      child.on("exit", resolve);
    });
    if (status !== 0) throw new BackendError("the addon was not built; the messages above say why");
    session.result({ built: true }, ["built the addon of the CUDA backend; `lockstep info` shows the GPUs"]);
    return 0;
  },
});
