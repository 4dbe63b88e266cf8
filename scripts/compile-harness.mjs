// Writes the training harness of the tests as plain JavaScript, so that processes of a job can load it without a test runner.
import { mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const HARNESS = "conformance/tests/harness/training/";

/**
 * Compiles the harness into `folder`, a path from the root of the package, and returns the path of `rank-program.js`. It uses
 * the built package: run `npm run build` before.
 */
export async function compileHarness(folder) {
  const out = `${ROOT}${folder}/`;
  await rm(out, { recursive: true, force: true });
  await mkdir(out + HARNESS, { recursive: true });
  // at the paths that the harness expects
  for (const [name, target] of Object.entries({
    src: "dist/src",
    LICENSE: "LICENSE",
    "conformance/vectors": "conformance/vectors",
  }))
    await symlink(ROOT + target, out + name);
  const names = await readdir(ROOT + HARNESS);
  for (const name of names.filter((each) => each.endsWith(".ts") && !each.endsWith(".d.ts"))) {
    const source = await readFile(ROOT + HARNESS + name, "utf8");
    const { outputText } = ts.transpileModule(source, {
      compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext },
    });
    await writeFile(out + HARNESS + name.replace(/\.ts$/, ".js"), outputText);
  }
  return `${out}${HARNESS}rank-program.js`;
}
