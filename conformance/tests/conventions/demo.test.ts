/** The figure in README.md equals the one that the demo draws. A short run draws the chart of one recipe. */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, expect, it } from "vitest";
import { sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";

const run = promisify(execFile);
const pathOf = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
const directory = mkdtempSync(join(tmpdir(), "lockstep-demo-"));

afterAll(() => rmSync(directory, { recursive: true }));

/** The charts of a figure by the names of their recipes. */
function chartsOf(figure: string): ReadonlyMap<string, string> {
  const charts = figure.matchAll(
    /<text class="name" y="12">([^<]*)<\/text>.*?(?=<g transform[^>]*><(?:text class="name"|path class="total" d="M0 30))/gs,
  );
  return new Map(Array.from(charts, ([chart, name = ""]) => [name, chart]));
}

const DEADLINE_MS = 400_000;
const committedPicture = readFileSync(pathOf("docs/demo.svg"), "utf8");
const committedCharts = chartsOf(committedPicture);

/** The figure that the demo draws. */
async function drawDemo(...options: readonly string[]): Promise<string> {
  await run(process.execPath, [pathOf("examples/demo/main.mjs"), "--out", directory, ...options]);
  return readFileSync(join(directory, "demo.svg"), "utf8");
}

it("README.md shows the charts of eleven recipes", () => {
  expect(readFileSync(pathOf("README.md"), "utf8")).toContain("(docs/demo.svg)");
  expect(committedCharts.size).toBe(11);
});

if (IS_FULL)
  it(
    "docs/demo.svg is what `npm run demo -- --write` writes",
    async () => {
      expect(committedPicture === (await drawDemo()), "run `npm run demo -- --write`").toBe(true);
    },
    DEADLINE_MS,
  );
else
  it.each(sampleCases([...committedCharts], 1))(
    "docs/demo.svg has the chart of %s that the demo draws",
    async (name, chart) => {
      const charts = chartsOf(await drawDemo("--recipe", name));
      expect([...charts.keys()]).toEqual([name]);
      expect(charts.get(name) === chart, "run `npm run demo -- --write`").toBe(true);
    },
    DEADLINE_MS,
  );
