// Builds the addon of the CUDA backend into build/native: `npm run build:cuda`, or `npx lockstep build-cuda` in an
// installed package. Options:
// - --architectures LIST: CMake's list, separated by semicolons; default 89-real;90a-real;100a-real.
// - --turns: builds sources that scripts/turns has instrumented into build/turns/build, to see which loops and branches
//   tests reach.
// - --stand-in: builds the addon with a stand-in for CUDA into build/stand-in; conformance/tests/addon tests it without
//   a GPU.
// - --unoptimized: builds into build/unoptimized in a sixth of the time, to see that all sources compile and link. The
//   kernels are slow, so nothing loads this addon unless LOCKSTEP_ADDON names it.
// - --print-toolkits: prints the toolkits that are found, the first of which a build uses, and builds nothing.
// A toolkit is searched for in CUDA_HOME, on the PATH, in the usual folders, and where scripts/cuda-toolkit or NVIDIA's
// wheels install it.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { delimiter, isAbsolute, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** The folder, among Python's packages, where NVIDIA's wheels install a toolkit. */
const WHEEL_FOLDER = "nvidia/cu13";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** The folder of NVIDIA's wheels with NCCL, which the addon also finds at run time. */
const NCCL_FOLDER = "nvidia/nccl/lib";

/** Headers that nvcc's FP8 headers include, and that are in a separate wheel (nvidia-cuda-cccl). */
const HEADERS = ["include/nv/target", "include/cccl/nv/target"];

/** Folders that contain bin/nvcc, in order of preference. Folders of wheels count only if they have all headers. */
function toolkits() {
  const { CUDA_HOME, CUDA_PATH, PATH = "" } = process.env;
  // an empty or relative entry of the PATH would mean the current folder, whose programs must not run
  const onPath = PATH.split(delimiter)
    .filter(isAbsolute)
    .map((folder) => join(folder, ".."));
  const candidates = [
    ...[CUDA_HOME, CUDA_PATH].filter(Boolean).map((folder) => resolve(folder)),
    ...onPath,
    "/usr/local/cuda",
    "/usr/local/cuda-13.0",
    "/opt/cuda",
    ...[join(ROOT, ".cuda-toolkit"), ...pythonFolders()]
      .map((folder) => join(folder, WHEEL_FOLDER))
      .filter((folder) => HEADERS.some((header) => existsSync(join(folder, header)))),
  ];
  return candidates.filter((folder) => existsSync(join(folder, "bin/nvcc")));
}

/**
 * The folders of Python's packages. The packages are not imported, because that would run their code. The interpreter
 * is isolated (-I), so that it runs nothing from the current folder or from PYTHON* variables.
 */
function pythonFolders() {
  const code = "import json, site, sys; print(json.dumps([*sys.path, site.getusersitepackages()]))";
  const { status, stdout } = spawnSync("python3", ["-I", "-c", code], { encoding: "utf8", cwd: ROOT });
  return status === 0 ? JSON.parse(stdout).filter(isAbsolute) : [];
}

function fail(message) {
  process.stderr.write(`build-cuda: ${message}\n`);
  process.exit(1);
}

function cmakeJs() {
  const require = createRequire(import.meta.url);
  const { peerDependencies } = require("../package.json");
  try {
    require.resolve("node-addon-api/package.json");
    return require.resolve("cmake-js/bin/cmake-js");
  } catch {
    const needed = Object.entries(peerDependencies)
      .filter(([name]) => name === "cmake-js" || name === "node-addon-api")
      .map(([name, range]) => `${name}@${range}`);
    return fail(`cmake-js or node-addon-api is not installed; npm install --save-dev ${needed.join(" ")}`);
  }
}

const { values } = parseArgs({
  options: {
    architectures: { type: "string" },
    turns: { type: "boolean" },
    "stand-in": { type: "boolean" },
    unoptimized: { type: "boolean" },
    "print-toolkits": { type: "boolean" },
  },
});
const available = toolkits();
if (values["print-toolkits"]) {
  process.stdout.write(available.map((folder) => `${folder}\n`).join(""));
  process.exit(0);
}
const [toolkit] = available;
if (!toolkit) {
  fail(
    "no nvcc in CUDA_HOME, on the PATH, in the usual folders or, with the headers of nvidia-cuda-cccl, in NVIDIA's Python wheels; install the CUDA 13 toolkit, or run scripts/cuda-toolkit for one that compiles",
  );
}
const settings = [`--CDCMAKE_CUDA_COMPILER=${join(toolkit, "bin/nvcc")}`];
if (values["stand-in"]) settings.push("--CDLOCKSTEP_STAND_IN=ON");
if (values.unoptimized) settings.push("--CDLOCKSTEP_UNOPTIMIZED=ON");
const nccl = [join(toolkit, "../.."), ...pythonFolders()]
  .map((folder) => join(folder, NCCL_FOLDER))
  .filter(existsSync);
if (nccl.length > 0) settings.push(`--CDLOCKSTEP_NCCL_FOLDERS=${nccl.join(";")}`);
if (values.architectures) settings.push(`--CDCMAKE_CUDA_ARCHITECTURES=${values.architectures}`);
if (values.turns) {
  const { markSources } = await import("./turns/sources.mjs");
  await markSources(ROOT, join(ROOT, "build/turns"));
  settings.push("--CDLOCKSTEP_TURNS=ON");
}
const [sources, out] = values.turns
  ? ["build/turns/native", "build/turns/build"]
  : ["native", `build/${values["stand-in"] ? "stand-in" : values.unoptimized ? "unoptimized" : "native"}`];
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
