/** The commands of README: the commands of the first table succeed, and the language model prints the text in README. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { useWorkspace } from "../harness/cli.js";
import { missingSmolLM2, SMOLLM2 } from "../harness/models.js";

const ROOT = new URL("../../../", import.meta.url).pathname;
const w = useWorkspace();

/** The commands in the second column of the table. */
const COMMANDS = [...readFileSync(`${ROOT}README.md`, "utf8").matchAll(/^\|[^|]+\| `([^`]+)` \|/gm)].map(
  ([, command = ""]) => command,
);
const OWN = COMMANDS.filter((command) => command.startsWith("npx lockstep "));
const HAS_NUMPY = spawnSync("python3", ["-I", "-c", "import numpy"]).status === 0;

/** The words of a command, one of which may be quoted. Paths in the repository become absolute. */
function wordsOf(command: string): readonly string[] {
  return Array.from(command.matchAll(/"([^"]*)"|(\S+)/g), ([, quotedWord, bareWord]) =>
    (quotedWord ?? bareWord ?? "").replace(/(conformance|examples)\//, `${ROOT}$&`),
  ).slice(2);
}

describe("README's first table", () => {
  it("has a command for each of three kinds of people", () => {
    expect(COMMANDS).toHaveLength(3);
    expect(OWN).toHaveLength(2);
    const { scripts } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8"));
    for (const command of COMMANDS.filter((commandLine) => !OWN.includes(commandLine)))
      expect(Object.keys(scripts)).toContain(command.replace("npm run ", ""));
  });

  for (const command of OWN) {
    const isSkipped = command.includes("numpy") && !HAS_NUMPY;
    it.skipIf(isSkipped)(`${command}${isSkipped ? " (skipped: numpy is not installed)" : ""}`, async () => {
      const args = wordsOf(command);
      // fewer inputs for each law than the default
      await w.succeed(...args, ...(args[0] === "conform" ? ["--runs", "10"] : []));
    });
  }
});

it("README shows what the language model prints", async ({ skip }) => {
  if (missingSmolLM2) return skip(missingSmolLM2);
  const example = /```console\n\$ npx lockstep generate "\$\(scripts\/fetch-model\)" (.*)\n([\s\S]*?)```/;
  const [, options = "", shownOutput = ""] = example.exec(readFileSync(`${ROOT}README.md`, "utf8")) ?? [];
  const args = wordsOf(`npx lockstep ${options}`);
  const withoutSpeed = (output: string): string => output.replace(/[\d.]+ tokens\/s/, "");
  const output = await w.succeed("generate", SMOLLM2, ...args);
  expect(withoutSpeed(output)).toBe(withoutSpeed(shownOutput));
});
