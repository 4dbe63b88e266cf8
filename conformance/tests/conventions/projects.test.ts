/**
 * Each test file belongs to exactly one vitest project. (The projects' globs are strings, so moving a folder can break
 * them unnoticed.)
 */
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { relative } from "node:path";
import { expect, it } from "vitest";
import { listFiles, ROOT } from "../harness/sources/sources.js";

/** The config of `npm run mutate`, which runs test files of the other projects. */
const MUTATION = "vitest.mutate.config.ts";
const CONFIGS = readdirSync(ROOT).filter((file) => /^vitest\..*config\.ts$/.test(file) && file !== MUTATION);
const FILES = ["src", "conformance", "bench", "scripts", "examples", "playground"]
  .flatMap(listFiles)
  .filter((file) => /\.(test|spec)\.[cm]?[jt]sx?$/.test(file));

/** Folders of conformance/tests with a project of their own; the project `reference` runs all others. */
const PROJECTS: Readonly<Record<string, string>> = {
  addon: "addon",
  browser: "browser",
  cuda: "gpu",
  nccl: "nccl",
  package: "vitest.package.config.ts",
  slow: "vitest.slow.config.ts",
};

function projectOf(file: string): string {
  const [, , folder = ""] = file.split("/");
  return PROJECTS[folder] ?? "reference";
}

/** The test files that vitest finds for a config, each with its project, or with the config if that has no projects. */
function filesAndProjects(config: string): readonly (readonly [file: string, project: string])[] {
  const listing = execFileSync(
    process.execPath,
    ["node_modules/vitest/vitest.mjs", "list", "--filesOnly", "--json", "--config", config],
    { cwd: ROOT, encoding: "utf8", env: { ...process.env, NODE_OPTIONS: "" } },
  );
  const rows = JSON.parse(listing) as readonly { readonly file: string; readonly projectName?: string }[];
  return rows.map(({ file, projectName = config }) => [relative(ROOT, file), projectName]);
}

it("each test file runs once, in the project of its folder", () => {
  const projects = new Map(FILES.map((file) => [file, [] as string[]]));
  for (const [file, project] of CONFIGS.flatMap(filesAndProjects))
    projects.set(file, [...(projects.get(file) ?? []), project]);
  expect(Object.fromEntries(projects)).toEqual(
    Object.fromEntries(FILES.map((file) => [file, [projectOf(file)]])),
  );
  expect([...new Set(FILES.map(projectOf))].sort()).toEqual([...Object.values(PROJECTS), "reference"].sort());
});
