/** Training programs of divided layers and parameters print the same hash with ranks in one process and as processes. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";

const ROOT = new URL("../../../../..", import.meta.url).pathname;
// inside the package folder, so that programs can import the package by its name
const PLACE = `${ROOT}out/parallel-test/`;
beforeAll(() => mkdirSync(PLACE, { recursive: true }));
afterAll(() => rmSync(PLACE, { recursive: true, force: true }));

async function run(...args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  let stdout = "";
  child.stdout.on("data", (text: Buffer) => {
    stdout += text;
  });
  const [status] = await once(child, "close");
  expect(status).toBe(0);
  return stdout;
}

it.each([
  ["parallel.mjs", "2"],
  ["hybrid.mjs", "4"],
])("%s of docs/distributed.md", async (name, ranks) => {
  const documents = readFileSync(`${ROOT}docs/distributed.md`, "utf8");
  const program = new RegExp(`^\`\`\`js\\n(// ${name}.*?)^\`\`\`$`, "ms").exec(documents)?.[1] ?? "";
  const printedHash = /console\.log\(hash\); \/\/ → (\w+)/.exec(program)?.[1];
  expect(printedHash).toMatch(/^[0-9a-f]{16}$/);
  writeFileSync(`${PLACE}${name}`, program);
  expect(await run(`${PLACE}${name}`)).toBe(`${printedHash}\n`);
  expect(await run(`${ROOT}dist/src/cli/bin.js`, "launch", "-n", ranks, `${PLACE}${name}`)).toBe(
    `${printedHash}\n`,
  );
});
