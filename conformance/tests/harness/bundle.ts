/**
 * Programs that tests run as child processes. A full run uses the built package. A short run bundles its modules into a few
 * files, because Node loads these in a quarter of the time of hundreds of modules.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { IS_FULL } from "./full.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** The programs, the library, and the modules of their worker threads. All are in one folder. */
const ENTRIES = {
  bin: `${ROOT}dist/src/cli/bin.js`,
  library: `${ROOT}dist/src/index.js`,
  distributed: `${ROOT}dist/src/collectives/processes/index.js`,
  program: `${ROOT}dist/src/cli/program.js`,
  rank: `${ROOT}conformance/tests/harness/ranks/rank.mjs`,
  thread: `${ROOT}dist/src/collectives/processes/thread.js`,
} as const;

let folder: string | undefined;

/** Returns the folder with the bundles of the current build. Its name contains their hash, and it stays in build/. */
function bundles(): string {
  if (folder) return folder;
  const { outputFiles } = buildSync({
    absWorkingDir: ROOT,
    entryPoints: ENTRIES,
    outdir: join(ROOT, "build"),
    bundle: true,
    splitting: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node20",
    external: ["zeromq"],
  });
  const hash = createHash("sha256");
  for (const { hash: fileHash } of outputFiles) hash.update(fileHash);
  const bundleFolder = join(ROOT, "build", `bundle-${hash.digest("hex").slice(0, 16)}`);
  if (!existsSync(bundleFolder)) {
    for (const name of readdirSync(join(ROOT, "build")))
      if (name.startsWith("bundle-") && !name.startsWith(basename(bundleFolder)))
        rmSync(join(ROOT, "build", name), { recursive: true, force: true });
    // another worker may write the same bundles at the same time
    const temporary = `${bundleFolder}.${process.pid}`;
    mkdirSync(temporary, { recursive: true });
    for (const { path, contents } of outputFiles) writeFileSync(join(temporary, basename(path)), contents);
    try {
      renameSync(temporary, bundleFolder);
    } catch (error) {
      if (!existsSync(bundleFolder)) throw error;
      rmSync(temporary, { recursive: true });
    }
  }
  folder = bundleFolder;
  return bundleFolder;
}

/** The path of a program that Node can run, or of the library. The package has to be built. */
export function programPath(name: "bin" | "rank" | "library" | "distributed"): string {
  return IS_FULL ? ENTRIES[name] : join(bundles(), `${name}.js`);
}
