/** docs/special-functions.md has the output of `explain`, and a row for each instruction. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { SPECIAL_FUNCTIONS, type SpecialFunctionRow } from "../../../src/formats/special-functions.js";
import { useWorkspace } from "../harness/cli.js";

const w = useWorkspace();
const PAGE = readFileSync(new URL("../../../docs/special-functions.md", import.meta.url), "utf8");

it("has the output of its command", async () => {
  const [, command = "", output = ""] = /^ {4}\$ lockstep (.+)\n((?: {4}.+\n)+)/m.exec(PAGE) ?? [];
  expect(await w.succeed(...command.split(" "))).toBe(output.replaceAll(/^ {4}/gm, ""));
});

it("lists the instructions with what was measured of each", () => {
  const rows = Object.entries<SpecialFunctionRow>(SPECIAL_FUNCTIONS).map(
    ([name, { measured }]) => `| \`${name}\` | ${measured} |`,
  );
  expect(PAGE).toContain(`|---|---|\n${rows.join("\n")}\n\n`);
});
