/** The figure in README.md equals the one that the demo draws. */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, expect, it } from "vitest";

const run = promisify(execFile);
const pathOf = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
const directory = mkdtempSync(join(tmpdir(), "lockstep-demo-"));

afterAll(() => rmSync(directory, { recursive: true }));

it("docs/demo.svg is what `npm run demo -- --write` writes, and README.md shows it", async () => {
  await run(process.execPath, [pathOf("examples/demo/main.mjs"), "--out", directory]);
  const drawn = readFileSync(join(directory, "demo.svg"), "utf8");
  const committed = readFileSync(pathOf("docs/demo.svg"), "utf8");
  expect(committed === drawn, "run `npm run demo -- --write`").toBe(true);
  expect(readFileSync(pathOf("README.md"), "utf8")).toContain("(docs/demo.svg)");
}, 400_000);
