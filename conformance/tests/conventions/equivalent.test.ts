/**
 * The list of equivalent mutants (mutants that change no behaviour) is current: each entry names a line that still exists, and a
 * reason.
 */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

interface Equivalent {
  readonly file: string;
  readonly line: string;
  readonly mutants?: readonly string[];
  readonly reason: string;
}

const ROOT = new URL("../../../", import.meta.url);
const entries = JSON.parse(
  readFileSync(new URL("scripts/mutate/equivalent.json", ROOT), "utf8"),
) as readonly Equivalent[];

it.each(entries.map(({ file, line }) => [file, line] as const))("%s has the line %s", (file, line) => {
  const lines = readFileSync(new URL(file, ROOT), "utf8").split("\n");
  expect(lines.map((sourceLine) => sourceLine.trim())).toContain(line);
});

it("each mutant listed as equivalent has a reason, and is listed once", () => {
  for (const { reason } of entries) expect(reason).toMatch(/\w+ \w+/);
  const mutants = entries.flatMap(({ file, line, mutants = ["any"] }) =>
    mutants.map((mutant) => [file, line, mutant].join("|")),
  );
  expect(new Set(mutants).size).toBe(mutants.length);
});
