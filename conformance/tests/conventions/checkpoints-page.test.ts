/** The commands of docs/checkpoints.md succeed, one after the other. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { useWorkspace } from "../harness/cli.js";

const ROOT = new URL("../../../", import.meta.url).pathname;
const w = useWorkspace();

it("shows commands that succeed", async () => {
  const lines = [...readFileSync(`${ROOT}docs/checkpoints.md`, "utf8").matchAll(/^ {4}lockstep (.+)$/gm)];
  expect(lines.length).toBeGreaterThanOrEqual(3);
  for (const [, line = ""] of lines)
    await w.succeed(
      ...line
        .split(" ")
        .map((word) =>
          word.startsWith("conformance/")
            ? ROOT + word
            : /^(wide|small|plain)-model$/.test(word)
              ? `@${word}`
              : word,
        ),
    );
});
