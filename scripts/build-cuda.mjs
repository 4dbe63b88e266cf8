// Builds the addon of the CUDA backend into build/native: `npm run build:cuda`, or `npx lockstep build-cuda` in an installed
// package. Options: --architectures LIST (CMake's, separated by semicolons; default 89-real;90a-real;100a-real); --turns builds
// from sources that scripts/turns has marked, into build/turns/build: which loops and branches the tests reach; --stand-in builds
// into build/stand-in what conformance/addon tests without a GPU.
// The toolkit is found in CUDA_HOME, on the PATH, in the usual folders, or where scripts/cuda-toolkit or NVIDIA's wheels put it.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** Folders with bin/nvcc in them, the first to be used. */
function toolkits() {
  const { CUDA_HOME, CUDA_PATH, PATH = "" } = process.env;
  const onPath = PATH.split(delimiter).map((folder) => join(folder, ".."));
  const wheels = join(ROOT, ".cuda-toolkit/nvidia/cu13");
  const candidates = [
    CUDA_HOME,
    CUDA_PATH,
    ...onPath,
    "/usr/local/cuda",
    "/usr/local/cuda-13.0",
    "/opt/cuda",
    wheels,
    wheelFolder(),
  ];
  return candidates.filter((folder) => folder && existsSync(join(folder, "bin/nvcc")));
}

/** Where NVIDIA's wheels are in this Python, if they are. */
function wheelFolder() {
  const code = "import nvidia, os; print(os.path.join(list(nvidia.__path__)[0], 'cu13'))";
  const { status, stdout } = spawnSync("python3", ["-c", code], { encoding: "utf8" });
  return status === 0 ? stdout.trim() : undefined;
}

function fail(message) {
  process.stderr.write(`build-cuda: ${message}\n`);
  process.exit(1);
}

function cmakeJs() {
  const require = createRequire(import.meta.url);
  try {
    require.resolve("node-addon-api/package.json");
    return require.resolve("cmake-js/bin/cmake-js");
  } catch {
    return fail("cmake-js and node-addon-api are not installed; npm install cmake-js@8 node-addon-api@8");
  }
}

const { values } = parseArgs({
  options: {
    architectures: { type: "string" },
    turns: { type: "boolean" },
    "stand-in": { type: "boolean" },
  },
});
const [toolkit] = toolkits();
if (!toolkit) {
  fail(
    "no nvcc in CUDA_HOME, on the PATH, in the usual folders or in NVIDIA's Python wheels; install the CUDA 13 toolkit, or run scripts/cuda-toolkit for one that compiles",
  );
}
const settings = [`--CDCMAKE_CUDA_COMPILER=${join(toolkit, "bin/nvcc")}`];
if (values["stand-in"]) settings.push("--CDLOCKSTEP_STAND_IN=ON");
if (values.architectures) settings.push(`--CDCMAKE_CUDA_ARCHITECTURES=${values.architectures}`);
if (values.turns) {
  const { markSources } = await import("./turns/sources.mjs");
  await markSources(ROOT, join(ROOT, "build/turns"));
  settings.push("--CDLOCKSTEP_TURNS=ON");
}
const [sources, out] = values.turns
  ? ["build/turns/native", "build/turns/build"]
  : ["native", values["stand-in"] ? "build/stand-in" : "build/native"];
const args = [
  "compile",
  "--directory",
  sources,
  "--out",
  out,
  "--parallel",
  String(availableParallelism()),
  ...settings,
];
process.stdout.write(`build-cuda: with the toolkit in ${toolkit}\n`);
const { status } = spawnSync(process.execPath, [cmakeJs(), ...args], {
  cwd: ROOT,
  stdio: "inherit",
  env: { ...process.env, CUDA_HOME: toolkit },
});
if (status !== 0) fail("the addon was not built; the compiler's messages are above");
process.stdout.write(`build-cuda: built ${out}/Release/lockstep.node\n`);
