/** The published package: what its installation contains, and its use in projects of every kind. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build as bundle } from "esbuild";
import { build as buildWithVite } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import manifest from "../../../package.json" with { type: "json" };
import { PROGRAMS, TYPED } from "./programs.js";
import { nodeOf, Project, pack, ROOT } from "./project.js";

const tarballs = mkdtempSync(join(tmpdir(), "lockstep-tarball-"));
const bareProject = new Project();
const fullProject = new Project();
let tarball: string;
let answer: string;

/** The output of a program. If the program fails, its errors are the message of the failure. */
function outputOf(project: Project, program: string, ...args: readonly string[]): string {
  const { status, output, errors } = project.run(program, ...args);
  if (status !== 0)
    throw new Error(`${program} ${args.join(" ")}: status ${status}: ${output}${errors.slice(-2000)}`);
  return output;
}

const bin = (name: string): string => join(ROOT, "node_modules", ".bin", name);

beforeAll(() => {
  tarball = pack(tarballs);
  bareProject.install(tarball);
  fullProject.install(tarball, `fast-check@${manifest.peerDependencies["fast-check"]}`);
  fullProject.write("imported.mjs", PROGRAMS.imported);
  fullProject.write("required.cjs", PROGRAMS.required);
  fullProject.write("dynamic.cjs", PROGRAMS.importedDynamically);
  answer = outputOf(fullProject, process.execPath, "imported.mjs");
});

afterAll(() => {
  for (const project of [bareProject, fullProject]) project.dispose();
  rmSync(tarballs, { recursive: true });
});

describe("an install", () => {
  it("installs only the package and its dependencies: no compiler tools, no test library", () => {
    expect(bareProject.packages).toEqual(["@huggingface", "lockstep"]);
  });

  it("can compute: the program gives the result of two threads", () => {
    expect(answer).toMatch(/^2 -?\d+ function [01]\n$/);
  });

  const install = (...names: (keyof typeof manifest.peerDependencies)[]): string =>
    `npm install --save-dev ${names.map((name) => `${name}@${manifest.peerDependencies[name]}`).join(" ")}`;
  it.each([
    ["conform", ["conform", "--runs", "1"], install("fast-check")],
    ["fuzz", ["fuzz", "--op", "encode", "--format", "e4m3", "-o", "out"], install("fast-check")],
    ["build-cuda", ["build-cuda"], install("cmake-js", "node-addon-api")],
    ["launch", ["launch", "-n", "2", "package.json"], install("zeromq")],
  ])("without its optional packages makes %s name the package to install", (name, args, command) => {
    const { status, errors } = bareProject.run("npx", "--no", "lockstep", ...args);
    expect(errors).toContain(`lockstep ${name}: `);
    expect(errors).toContain(command);
    expect(status).toBe(2);
  });

  it("without fast-check has lockstep/conformance throw a MissingPackageError that says what to install", () => {
    bareProject.write(
      "missing.mjs",
      `import { MissingPackageError } from "lockstep";
      const error = await import("lockstep/conformance").catch((error) => error);
      console.log(error instanceof MissingPackageError, error.code, error.message);`,
    );
    const output = outputOf(bareProject, process.execPath, "missing.mjs");
    expect(output).toMatch(/^true MISSING_PACKAGE lockstep\/conformance needs fast-check/);
    expect(output).toContain(install("fast-check"));
  });
});

describe("lockstep/conformance", () => {
  it("exports the same names and the same objects for import and for require", () => {
    fullProject.write(
      "names.cjs",
      `const required = require("lockstep/conformance");
      import("lockstep/conformance").then((imported) => {
        const names = Object.keys(imported);
        console.log(names.length > 40, names.join() === Object.keys(required).join(), names.every((name) => imported[name] === required[name]));
      });`,
    );
    expect(outputOf(fullProject, process.execPath, "names.cjs")).toBe("true true true\n");
  });
});

describe.each([20, 22, 24])("on Node %i", (major) => {
  const node = nodeOf(major);
  const run = (file: string): string => outputOf(fullProject, "path" in node ? node.path : "", file);

  it.for([
    ["ESM imports it", "imported.mjs"],
    ["CommonJS requires it", "required.cjs"],
    ["CommonJS imports it dynamically", "dynamic.cjs"],
  ] as const)("%s", ([, file], { skip }) => {
    if ("missing" in node) return skip(node.missing);
    expect(run(file)).toBe(answer);
  });

  it("the program lockstep conform passes all laws on the reference", ({ skip }) => {
    if ("missing" in node) return skip(node.missing);
    const program = join(fullProject.folder, "node_modules/lockstep", manifest.bin.lockstep);
    const output = outputOf(fullProject, node.path, program, "conform", "--runs", "2", "--quiet");
    expect(output).toMatch(/^(\d+) of \1 laws hold for wasm/);
  });
});

describe("TypeScript", () => {
  const kinds = {
    "ESM under nodenext": ["typed.mts", { module: "nodenext" }],
    "CommonJS under nodenext": ["typed.cts", { module: "nodenext" }],
    "ESM under bundler": ["typed-bundled.mts", { module: "esnext", moduleResolution: "bundler" }],
  } as const;

  it.each(Object.entries(kinds))("compiles %s, and reports its marked mistakes", (_, [file, options]) => {
    const config = {
      target: "es2022",
      strict: true,

      noEmitOnError: true,
      types: ["node"],
      ...options,
    };
    const typeRoots = [join(ROOT, "node_modules/@types")];
    fullProject.write(file, TYPED.replace("main();", ""));
    const configFile = fullProject.write(
      `tsconfig.${file}.json`,
      JSON.stringify({ compilerOptions: { ...config, typeRoots, outDir: "typed" }, files: [file] }),
    );
    expect(fullProject.run(bin("tsc"), "-p", configFile)).toEqual({ status: 0, output: "", errors: "" });
  });
});

describe("a bundle", () => {
  it("by Vite, for browsers, computes the same on one thread", async () => {
    const entry = fullProject.write("vite-entry.js", PROGRAMS.onOneThread);
    await buildWithVite({
      root: fullProject.folder,
      configFile: false,
      logLevel: "error",
      build: { outDir: "vite", rollupOptions: { input: entry, output: { entryFileNames: "bundle.mjs" } } },
    });
    expect(outputOf(fullProject, process.execPath, "vite/bundle.mjs")).toBe(answer.replace(/^2/, "1"));
  });

  const kinds = {
    "ESM for Node": ["imported", { platform: "node", format: "esm" }],
    "ESM for Node, small": ["imported", { platform: "node", format: "esm", minify: true }],
    "ESM for Node, with names kept": ["imported", { platform: "node", format: "esm", keepNames: true }],
    "CommonJS for Node": [
      "importedDynamically",
      { platform: "node", format: "cjs", logOverride: { "empty-import-meta": "silent" } },
    ],
    "ESM for browsers": ["onOneThread", { platform: "browser", format: "esm" }],
  } as const;

  it.each(Object.entries(kinds))("by esbuild, as %s, computes the same", async (name, [program, options]) => {
    const entry = fullProject.write("esbuild-entry.js", PROGRAMS[program]);
    const outfile = join(
      fullProject.folder,
      `esbuild/${name.replace(/\W+/g, "-")}.${options.format === "cjs" ? "cjs" : "mjs"}`,
    );
    await bundle({
      entryPoints: [entry],
      outfile,
      bundle: true,
      target: "es2022",
      logLevel: "warning",
      ...options,
    });
    const expected = options.platform === "browser" ? answer.replace(/^2/, "1") : answer;
    expect(outputOf(fullProject, process.execPath, outfile)).toBe(expected);
  });

  it("without calls of the reference is small: importing names of tables does not include the reference", async () => {
    const entry = fullProject.write(
      "small-entry.js",
      `import { DATAPATHS } from "lockstep"; console.log(Object.keys(DATAPATHS));`,
    );
    const { outputFiles } = await bundle({
      entryPoints: [entry],
      bundle: true,
      minify: true,
      format: "esm",
      write: false,
    });
    expect(outputFiles[0]?.contents.length).toBeLessThan(30_000);
  });
});

describe("the package's form", () => {
  it("passes publint, including its suggestions", () => {
    expect(fullProject.run(bin("publint"), "run", "--strict", tarball)).toMatchObject({ status: 0 });
  });

  // cjs-resolves-to-esm is ignored because require() returns an ES module on purpose (tests above run it on each Node
  // version); the profile is node16 because node10 resolution does not know subpath exports
  it("has types that pass arethetypeswrong in every module resolution that supports exports", () => {
    const tarballNames = fullProject.run(
      bin("attw"),
      tarball,
      "--profile",
      "node16",
      "--ignore-rules",
      "cjs-resolves-to-esm",
    );
    expect(tarballNames).toMatchObject({ status: 0 });
  });
});
