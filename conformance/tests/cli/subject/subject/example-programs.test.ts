/** The example subjects in C++ and CUDA compile and agree with the reference; with a mistake they are rejected. */
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { useWorkspace } from "../../../harness/cli.js";
import { draws, sampleCases } from "../../../harness/draws.js";
import { IS_FULL } from "../../../harness/full.js";

const ROOT = new URL("../../../../../", import.meta.url).pathname;
const EXAMPLES = join(ROOT, "examples/subjects");
const RUNS = 200;
const TIMEOUT = 300_000;

const w = useWorkspace();
const folder = mkdtempSync(join(tmpdir(), "lockstep-subjects-"));
cpSync(join(EXAMPLES, "frames.hpp"), join(folder, "frames.hpp"));
afterAll(() => rmSync(folder, { recursive: true }));

type Source = "mxfp8.cpp" | "mxfp8.cu";
const DIFFERS = /rowwise\.(data|scaleInv): \d+ of \d+ elements differ/;

/** One mistake in each part of the kernel, and the words that the report must contain. */
const MISTAKES: Readonly<Record<Source, readonly (readonly [from: string, to: string, found: RegExp])[]>> = {
  "mxfp8.cpp": [
    ["std::nearbyint(", "std::round(", /looks like: ties go away from zero \(half away\)/],
    ["std::nearbyint(", "std::trunc(", /looks like: elements are truncated toward zero/],
    [": fraction > 0;", ": fraction > 0x7fffff;", /looks like: .*the scale is the floor of the quotient/],
    ["std::signbit(x) ? 0x80 : 0", "x < 0 ? 0x80 : 0", /looks like: -0 becomes \+0/],
    ["std::isnan(x)", "x == 1", DIFFERS],
  ],
  "mxfp8.cu": [
    [": fraction > 0;", ": fraction > 0x7fffff;", /looks like: .*the scale is the floor of the quotient/],
    [
      "isnan(magnitude) ? 0 : ",
      "",
      /looks like: the scale of a block with NaN|seen: scales are wrong .*only where the block has NaN/,
    ],
    ["__NV_SATFINITE", "__NV_NOSAT", /looks like: saturation is missing/],
    ["scale == 254 ? 0x400000 : ", "", DIFFERS],
  ],
};

interface Language {
  readonly source: Source;
  readonly compile: readonly string[];
  /** The reason why it does not compile here, or does not run. */
  readonly missing: string;
  readonly idle: string;
}

/** The reason why a program cannot be run, or "". */
function refusal(command: string, ...args: readonly string[]): string {
  const { status, stderr, error } = spawnSync(command, args, { encoding: "utf8" });
  if (error) return String(error);
  return status === 0 ? "" : `${command} ${args.join(" ")} ended with ${status}: ${stderr}`;
}

/** The compiler that a build of the CUDA backend would use. */
function nvcc(): string | undefined {
  const command = [join(ROOT, "scripts/build-cuda.mjs"), "--print-toolkits"];
  const [toolkit] = spawnSync(process.execPath, command, { encoding: "utf8" }).stdout.split("\n");
  return toolkit ? join(toolkit, "bin/nvcc") : undefined;
}

const CUDA_COMPILER = nvcc();
const NO_GPU = refusal("nvidia-smi", "-L");
const ARCHITECTURE = NO_GPU === "" ? "native" : "sm_90";

const CPP: Language = {
  source: "mxfp8.cpp",
  compile: ["g++", "-std=c++17", IS_FULL ? "-O2" : "-O0", "-Wall", "-Wextra", "-Werror"],
  missing: refusal("g++", "--version"),
  idle: "",
};
const CUDA: Language = {
  source: "mxfp8.cu",
  compile: [CUDA_COMPILER ?? "nvcc", "-std=c++17", `-arch=${ARCHITECTURE}`, "-Werror", "all-warnings"],
  missing: CUDA_COMPILER ? "" : "no nvcc is here; CUDA_HOME=$(scripts/cuda-toolkit) has one",
  idle: NO_GPU === "" ? "" : `the kernel is compiled, and not run: no GPU is here (${NO_GPU})`,
};

const programs = new Map<string, string>();

/** Compiles an example with one replacement in its source, unless that was done before, and returns the program. */
function compileProgram(
  { source, compile }: Language,
  [pattern, replacement]: readonly [string, string] = ["", ""],
): string {
  const key = JSON.stringify([source, pattern, replacement]);
  const cachedPath = programs.get(key);
  if (cachedPath) return cachedPath;
  const text = readFileSync(join(EXAMPLES, source), "utf8");
  expect(text).toContain(pattern);
  const file = join(folder, source);
  writeFileSync(file, text.replace(pattern, replacement));
  const program = join(folder, `subject${programs.size}`);
  const [command = "", ...compilerArgs] = compile;
  const { status, stdout, stderr } = spawnSync(command, [...compilerArgs, "-o", program, file], {
    encoding: "utf8",
  });
  expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: "", stderr: "" });
  programs.set(key, program);
  return program;
}

const conform = (program: string, runs = RUNS) =>
  w.run("conform", "--subject", program, "--runs", String(runs));

describe.each([
  ["C++", CPP],
  ["CUDA", CUDA],
] as const)("the subject in %s", (_, language) => {
  const { source, missing, idle } = language;

  it("compiles, and a case without a GPU has the reason", { timeout: TIMEOUT }, async ({ skip }) => {
    skip(missing !== "", missing);
    const program = compileProgram(language);
    if (idle === "") return;
    const { status, stdout } = await conform(program);
    expect(stdout).toMatch(/the subject reports an error: .*CUDA/);
    expect(status).toBe(1);
  });

  it("agrees with the reference", { timeout: TIMEOUT }, async ({ skip }) => {
    skip(missing !== "" || idle !== "", missing || idle);
    const runs = draws(RUNS);
    const { status, stdout } = await conform(compileProgram(language), runs);
    expect(stdout).toMatch(new RegExp(`holds {2}quantize agrees with the reference: ${runs} runs`));
    expect(status).toBe(0);
  });

  it.for(sampleCases(MISTAKES[source], 1))(
    "is found out with %j as %j",
    { timeout: TIMEOUT },
    async ([pattern, replacement, message], { skip }) => {
      skip(missing !== "" || idle !== "", missing || idle);
      const { status, stdout } = await conform(compileProgram(language, [pattern, replacement]));
      expect(stdout).toMatch(message);
      expect(status).toBe(1);
    },
  );
});
