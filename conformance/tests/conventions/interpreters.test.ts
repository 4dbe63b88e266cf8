/** Programs in other languages that the scripts run (such as Python) execute no file of the user's current folder. */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";

const ROOT = new URL("../../..", import.meta.url).pathname;

let folder = "";
let marker = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lockstep-hostile-folder-"));
  marker = join(folder, "was-run");
});
afterEach(() => rmSync(folder, { recursive: true }));

/**
 * Writes modules that Python would import from the current folder, and programs that an unsafe PATH would find there.
 */
function makeHostile(): void {
  const module = `open(${JSON.stringify(marker)}, "a").write(__file__ + "\\n")\n__path__ = [${JSON.stringify(join(folder, "nvidia"))}]\n`;
  for (const name of ["nvidia", "pip", "venv", "json", "site", "os", "sitecustomize", "usercustomize"]) {
    mkdirSync(join(folder, name), { recursive: true });
    writeFileSync(join(folder, name, "__init__.py"), module);
  }
  for (const bin of ["bin", "nvidia/cu13/bin"]) {
    mkdirSync(join(folder, bin), { recursive: true });
    for (const program of ["nvcc", "python3"]) {
      writeFileSync(join(folder, bin, program), `#!/bin/sh\necho ${program} >> ${marker}\n`);
      chmodSync(join(folder, bin, program), 0o755);
    }
  }
}

it.each([
  ["as it is", () => ({})],
  [
    "with the folder on Python's path",
    () => ({ PYTHONPATH: folder, PYTHONSTARTUP: join(folder, "os/__init__.py") }),
  ],
  ["with relative entries on the PATH", () => ({ PATH: ["", ".", "bin", process.env.PATH].join(delimiter) })],
])("build-cuda executes no program of the current folder: %s", (_, extraArgs) => {
  makeHostile();
  const { CUDA_HOME, CUDA_PATH, ...env } = process.env;
  const script = join(ROOT, "scripts/build-cuda.mjs");
  const options = { cwd: folder, encoding: "utf8", env: { ...env, ...extraArgs() } } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, "--print-toolkits"], options);
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).not.toContain(folder);
  expect(existsSync(marker) && readFileSync(marker, "utf8")).toBe(false);
});

it("build-cuda uses the toolkit in CUDA_HOME", () => {
  makeHostile();
  const script = join(ROOT, "scripts/build-cuda.mjs");
  const env = { ...process.env, CUDA_HOME: "nvidia/cu13" };
  const { stdout } = spawnSync(process.execPath, [script, "--print-toolkits"], {
    cwd: folder,
    encoding: "utf8",
    env,
  });
  expect(stdout.split("\n")[0]).toBe(join(folder, "nvidia/cu13"));
});

it("build-cuda uses a toolkit of Python's packages that has the headers that nvcc needs, and no other", () => {
  const userSite = spawnSync("python3", ["-I", "-c", "import site; print(site.getusersitepackages())"], {
    encoding: "utf8",
    env: { ...process.env, HOME: folder },
  }).stdout.trim();
  const toolkit = join(userSite, "nvidia/cu13");
  const toolkits = (): string => {
    const command = [join(ROOT, "scripts/build-cuda.mjs"), "--print-toolkits"];
    return spawnSync(process.execPath, command, { encoding: "utf8", env: { ...process.env, HOME: folder } })
      .stdout;
  };
  for (const [file, isFound] of [
    ["bin/nvcc", false],
    ["include/nv/target", true],
  ] as const) {
    mkdirSync(join(toolkit, dirname(file)), { recursive: true });
    writeFileSync(join(toolkit, file), "");
    expect(toolkits().split("\n").includes(toolkit), file).toBe(isFound);
  }
});

/** Matches calls of Python with -c or -m but without -I: they import modules from the current folder first. */
const EXPOSED = /\bpython3?\b["']?,?\s*\[?\s*(?:["']?-(?!I)\w+["']?,?\s+)*["']?-[cm]\b/;

it.each([
  ["python3 -c 'x'", true],
  ["python3 -m pip", true],
  ["python -u -m pip", true],
  ['spawnSync("python3", ["-c", code]', true],
  ["python3 -I -m pip", false],
  ['spawnSync("python3", ["-I", "-c", code]', false],
  ["python3 $here/script.py", false],
])("is isolated: %s (%s)", (line, isExposed) => expect(EXPOSED.test(line)).toBe(isExposed));

it("every Python that the project's own scripts run by code or module is isolated", () => {
  const folders = [
    "scripts",
    "scripts/witness",
    "bench",
    "bench/cuda",
    "native",
    "src/cli",
    "src/cli/commands",
    "examples/shared",
    ".",
  ];
  const files = folders.flatMap((name) =>
    readdirSync(join(ROOT, name), { withFileTypes: true }).flatMap((entry) =>
      entry.isFile() ? [join(ROOT, name, entry.name)] : [],
    ),
  );
  expect(files.length).toBeGreaterThan(40);
  const exposedLines = files.flatMap((file) =>
    readFileSync(file, "utf8")
      .split("\n")
      .flatMap((line) => (EXPOSED.test(line) ? [`${file}: ${line.trim()}`] : [])),
  );
  expect(exposedLines).toEqual([]);
});
