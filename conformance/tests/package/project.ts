/** A temporary project in which the packed package is installed. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import manifest from "../../../package.json" with { type: "json" };

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** Packs the output of `npm run build` without building again. */
export function pack(folder: string): string {
  npm(ROOT, "pack", "--ignore-scripts", "--pack-destination", folder);
  return join(folder, `lockstep-${manifest.version}.tgz`);
}

export class Project {
  readonly folder = mkdtempSync(join(tmpdir(), "lockstep-package-"));

  constructor() {
    this.write("package.json", JSON.stringify({ name: "consumer", private: true, type: "module" }));
  }

  write(path: string, text: string): string {
    const fullPath = join(this.folder, path);
    mkdirSync(dirname(fullPath), { recursive: true });
    writeFileSync(fullPath, text);
    return fullPath;
  }

  install(...packages: readonly string[]): void {
    npm(this.folder, "install", "--omit=dev", "--no-audit", "--no-fund", ...packages);
  }

  /** The names of the installed packages. */
  get packages(): string[] {
    return readdirSync(join(this.folder, "node_modules")).filter((name) => !name.startsWith("."));
  }

  /** Runs a program in the project; returns its output, and its errors if it failed. */
  run(
    program: string,
    ...args: readonly string[]
  ): { status: number | null; output: string; errors: string } {
    const { status, stdout, stderr } = spawnSync(program, args, { cwd: this.folder, encoding: "utf8" });
    return { status, output: stdout, errors: stderr };
  }

  dispose(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function npm(cwd: string, ...args: readonly string[]): void {
  execFileSync("npm", args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

/** The executable of a Node version from the registry, or the reason why it is not available. */
export function nodeOf(major: number): { readonly path: string } | { readonly missing: string } {
  const args = ["--yes", `--package=node@${major}`, "node", "-p", "process.execPath"];
  const { status, stdout, stderr } = spawnSync("npx", args, { cwd: tmpdir(), encoding: "utf8" });
  if (status === 0) return { path: stdout.trim() };
  const missing = `Node ${major} could not be installed: ${stderr.trim().split("\n").at(-1) || "npx failed"}`;
  process.stdout.write(`package tests: skipped: ${missing}\n`);
  return { missing };
}
