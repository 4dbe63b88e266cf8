/** The tables of forms in docs/models.md and README.md show the recorded measurement. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { ORDER, section, summary } from "../../../examples/forms/table.mjs";

const readText = (path: string): string => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");

it.each([
  ["docs/models.md", section],
  ["README.md", summary],
])("%s has what `node examples/forms/main.mjs --write` measured", (page, table) => {
  const measured = JSON.parse(readText("examples/forms/measured.json"));
  expect(Object.keys(measured)).toEqual(expect.arrayContaining([...ORDER, "damage", "original"]));
  const [, shownTable] = /<!-- forms -->\n(.*?)<!-- \/forms -->/s.exec(readText(page)) ?? [];
  expect(shownTable).toBe(table(measured));
});

it("verify names the damaged scale as an error, and the damaged model is worse", () => {
  const { damage } = JSON.parse(readText("examples/forms/measured.json"));
  expect(damage.finding).toMatchObject({ name: "scale-inverted", severity: "error" });
  expect(damage.scale.startsWith(damage.finding.subject)).toBe(true);
  expect(damage.damaged.perplexity).toBeGreaterThan(100 * damage.sound.perplexity);
  expect(damage.damaged.text).not.toBe(damage.sound.text);
});
