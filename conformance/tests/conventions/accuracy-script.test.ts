// scripts/accuracy.mjs, which docs/accuracy.md names, measures a function on the reference.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

it("measures 65,536 inputs of a function, and finds no other result than the definition's", async () => {
  const command = ["scripts/accuracy.mjs", "--stride", "65536", "relu"];
  // stems that are not optimized are compiled in a third of the time
  const env = { ...process.env, LOCKSTEP_TESTS: "short" };
  const { stdout } = await promisify(execFile)(process.execPath, command, { cwd: root, env });
  expect(JSON.parse(stdout)).toMatchObject({ name: "relu", inputs: 65536, different: 0 });
});
