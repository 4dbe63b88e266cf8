// The page of a replayed run: a cell and a row for each operation, explained differences, and no text of the run as markup.
import { existsSync, readFileSync } from "node:fs";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type RunPage, runPage } from "../../../../src/cli/pictures/run-page.js";
import type { Verdict } from "../../../../src/referee/replay.js";
import { useWorkspace } from "../../harness/cli.js";
import { draws } from "../../harness/draws.js";
import { RecordedRun, runPath } from "../../harness/referee/recorded-run.js";

const w = useWorkspace();

function pageOf(schema: string, verdict: Partial<Verdict> = {}, extraFields: Partial<RunPage> = {}): string {
  return runPage({
    ...{ run: "run", summary: "1 operation", contract: [["chip", "h200"]], explain: () => [] },
    operations: [{ schema, args: [], kwargs: {}, outputs: [{ dtype: "BF16", shape: [2, 3] }] }],
    verdicts: [{ index: 0, schema, verdict: "same", ...verdict }],
    ...extraFields,
  });
}

describe("the page of a run", () => {
  it("has no markup from the run", () => {
    const text = fc
      .string({ unit: "binary", maxLength: 40 })
      .map((characters) => `${characters}<b>&"${characters}`);
    fc.assert(
      fc.property(text, (hostileText) => {
        const page = pageOf(
          hostileText,
          { verdict: "not modelled", reason: hostileText },
          {
            ...{
              run: hostileText,
              summary: hostileText,
              comparison: hostileText,
              contract: [[hostileText, hostileText]],
            },
            explain: () => [hostileText],
          },
        );
        expect(page).not.toMatch(/<b>|&"/);
        expect(page).not.toMatch(
          /<(?!\/?(html|head|meta|title|style|body|h1|h2|p|div|a|table|thead|tbody|tr|th|td|span|pre)\b|!doctype)/,
        );
      }),
      { numRuns: draws(100) },
    );
  });

  it("says in words what a verdict rests on", () => {
    expect(pageOf("aten::mm", { splits: 2, unverified: true })).toContain(
      ">same, K in 2 splits, unverified</span>",
    );
    expect(pageOf("aten::x", { verdict: "not modelled", reason: "no row" })).toContain(
      ">not modelled, no row</span>",
    );
    expect(pageOf("aten::mm")).toContain("<td>BF16 [2, 3]</td>");
  });
});

describe("lockstep replay --page", () => {
  it("writes a cell and a row for each operation, and explains what differs", async () => {
    const run = await RecordedRun.read("step");
    const index = run.operations.findIndex(({ schema }) => schema === "aten::mm");
    const [output] = run.operations[index]?.outputs ?? [];
    if (!output) throw new Error("the run has no product");
    const bytes = run.tensorBytes(output).slice();
    bytes[0] = (bytes[0] as number) ^ 1;
    Object.assign(output, run.add({ ...output, bytes } as never));
    await run.write(w.path("run"));
    const { status, stdout } = await w.run("replay", "@run", "--page", "@page.html");
    expect(status).toBe(1);
    const page = readFileSync(w.path("page.html"), "utf8");
    expect(page.match(/<a class="/g)).toHaveLength(run.operations.length);
    expect(page.match(/<tr id="operation-\d+">/g)).toHaveLength(run.operations.length);
    expect(page.match(/<a class="differs"/g)).toHaveLength(1);
    const summary = stdout.trimEnd().split("\n").at(-1) as string;
    expect(page).toContain(`<p>${summary}</p>`);
    const row = page.split("\n").find((line) => line.includes(`<tr id="operation-${index}">`)) ?? "";
    expect(page.slice(page.indexOf(row))).toMatch(/<pre>output 0, BF16|<pre> {2}output 0, BF16/);
    expect(page).toContain("<tr><th>chip</th><td>h200</td></tr>");
  });

  it("does not overwrite the run", async () => {
    const { status, stderr } = await w.run(
      "replay",
      runPath("block"),
      "--page",
      `${runPath("block")}/log.json`,
    );
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringMatching(/--page/) });
    expect(existsSync(w.path("page.html"))).toBe(false);
  });
});
