/**
 * The tool that instruments the addon's loops (scripts/turns) adds only marks, misses no loop, and its output is
 * evaluated correctly.
 */
import { readFileSync } from "node:fs";
import { extname, join } from "node:path";
import * as fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { EXCEPTIONS } from "../../../scripts/turns/exceptions.mjs";
import { cudaParser, instrument, type Site } from "../../../scripts/turns/instrument.mjs";
import { filesIn } from "../../../scripts/turns/sources.mjs";
import { tally, verdict } from "../../../scripts/turns/verdict.mjs";
import { sampleCases } from "../harness/draws.js";

const ROOT = new URL("../../..", import.meta.url).pathname;
const FILES = ["kernels", "native"].flatMap((folder) =>
  filesIn(ROOT, folder).filter((name) => [".cu", ".cuh", ".cc", ".h"].includes(extname(name))),
);
const sourceOf = (file: string): string => readFileSync(join(ROOT, file), "utf8");

let parser: Awaited<ReturnType<typeof cudaParser>>;
beforeAll(async () => {
  parser = await cudaParser();
});

/** A character that no source contains; it shows where a mark began. */
const OPENED = "\u2991";

/** The source with its marks removed. */
function removeMarks(text: string): string {
  return text
    .replace(/\{ int lockstepTurn\d+ = 0;\n/g, OPENED)
    .replace(/\{ ::lockstep::turns::turn\(\d+, lockstepTurn\d+\); /g, OPENED)
    .replace(/::lockstep::turns::turn\(\d+, lockstepTurn\d+\);/g, "")
    .replace(/::lockstep::turns::branch\(\d+, static_cast<bool>\(/g, OPENED);
}

/** How often a keyword starts a statement of a source. Comments, strings and names do not count. */
function countKeywords(source: string, pattern: RegExp): number {
  const code = source
    .replace(/\/\/.*|\/\*[\s\S]*?\*\//g, "")
    .replace(/"(?:[^"\\\n]|\\.)*"/g, '""')
    .replace(/^\s*#(?!pragma).*$/gm, "");
  return [...code.matchAll(pattern)].length;
}

describe.each(sampleCases(FILES, 24))("%s", (file) => {
  it("is changed only by added marks", () => {
    const source = sourceOf(file);
    const { text, sites } = instrument(parser, source, { branches: true });
    const numOpened = [...removeMarks(text)].filter((c) => c === OPENED).length;
    // each mark also adds closing characters: " }" or "))"
    expect(text.length - source.length).toBeGreaterThanOrEqual(2 * sites.length);
    let position = 0;
    let closings = "";
    for (const c of removeMarks(text).replaceAll(OPENED, "")) {
      if (c === source[position]) position++;
      else closings += c;
    }
    expect(position).toBe(source.length);
    expect(closings.replace(/ \}|\)\)|[ })]/g, "")).toBe("");
    expect(numOpened > 0).toBe(sites.length > 0);
  });

  it("has no loop that the parser missed", () => {
    const source = sourceOf(file);
    const { loops } = instrument(parser, source);
    expect(loops).toBe(countKeywords(source, /\b(?:for|while)\s*\(/g));
  });
});

describe("a loop", () => {
  const sitesOf = (body: string, parameters = "int n"): readonly Site[] =>
    instrument(parser, `template <int width>\n__device__ void f(${parameters}) {\n${body}\n}\n`).sites;

  it.each([
    "for (int i = 0; i < n; ++i) g(i);",
    "for (int i = threadIdx.x; i < kTile; i += kThreads) g(i);",
    "for (int i = 0; i < kTile; i += n) g(i);",
    "for (int64_t row = blockIdx.y; row < p.rows; row += step) {\n g(row);\n}",
    "while (n > 0) --n;",
    "do --n; while (n > 0);",
    "#pragma unroll 4\nfor (; n > 0; n -= kTile) {}",
    "for (const auto& each : list) g(each);",
    "if (n) for (int i = 0; i < n; ++i) g(i); else h();",
  ])("whose number of iterations depends on its input is marked: %s", (body) => {
    expect(sitesOf(body)).toHaveLength(1);
  });

  it.each([
    "for (int i = 0; i < 4; ++i) g(i);",
    "#pragma unroll\nfor (int i = 0; i < width; ++i) g(i);",
    "for (int w = kLanes / 2; w > 0; w /= 2) g(w);",
    "for (int k = 0; k < Map::kEights; ++k) g(k);",
    "for (const int& each : {1, 2}) g(each);",
  ])("whose number of iterations is constant is not marked: %s", (body) => {
    expect(sitesOf(body)).toEqual([]);
  });

  it("keeps its pragma directly before it", () => {
    const { text } = instrument(
      parser,
      "void f(int n) {\n#pragma unroll 4\n  for (int i = 0; i < n; ++i) g(i);\n}\n",
    );
    expect(text).toContain("= 0;\n#pragma unroll 4\n  for");
  });
});

describe("the verdict on which loops iterated", () => {
  const site = (file: string, text: string, kind: "loop" | "branch" = "loop") => ({
    file,
    line: 1,
    text,
    kind,
  });
  const sites = [
    site("kernels/a.cu", "for a"),
    site("kernels/h.cuh", "for h"),
    site("kernels/a.cu", "if", "branch"),
  ];
  const marks = (unit: string, ...bytes: readonly number[]) => ({
    [unit]: String.fromCharCode(...bytes, ...new Array<number>(6 - bytes.length).fill(0)),
  });

  it("names the loops that had no second iteration, and a header's loops by the header", () => {
    const counts = tally(sites, [
      marks("kernels/a.cu", 1, 0, 1, 0),
      marks("kernels/b.cu", 0, 0, 1, 1),
      marks("kernels/a.cu", 0, 0, 0, 0, 1, 0),
    ]);
    const { missing, branches } = verdict(sites, counts, []);
    expect(missing.map(({ text, units }) => [text, units])).toEqual([
      ["for a", ""],
      ["for h", "kernels/a.cu"],
    ]);
    expect(branches.map(({ way }) => way)).toEqual(["always false"]);
  });

  it("is that nothing is missing if every loop had two iterations, in whichever runs", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(0, 1), { minLength: 6, maxLength: 6 }), (firstRun) => {
        const secondRun = firstRun.map((bit) => 1 - bit);
        const counts = tally(sites, [
          marks("kernels/a.cu", ...firstRun),
          marks("kernels/a.cu", ...secondRun),
        ]);
        expect(verdict(sites, counts, [])).toMatchObject({ missing: [], branches: [] });
      }),
    );
  });

  it("applies an exception to the loop of its file and text, and names an exception that matches no loop", () => {
    const exception = { file: "kernels/a.cu", text: "for a", reason: "r" };
    const noRuns = tally(sites, []);
    expect(verdict(sites, noRuns, [exception]).missing.map(({ text }) => text)).toEqual(["for h"]);
    const completeRun = tally(sites, [marks("kernels/a.cu", 1, 1, 1, 1)]);
    expect(verdict(sites, completeRun, [exception]).stale).toEqual([exception]);
  });

  it("has exceptions that name existing loops, each with its reason", () => {
    for (const { file, text, reason } of EXCEPTIONS) {
      const { sites: ownSites } = instrument(parser, sourceOf(file));
      expect(
        ownSites.map((ownSite) => ownSite.text),
        file,
      ).toContain(text);
      expect(reason.length).toBeGreaterThan(10);
    }
  });
});
