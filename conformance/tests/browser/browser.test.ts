/**
 * The built package in a real browser gives the same bits as in Node, with and without threads. Pages without
 * WebAssembly threads get a clear answer.
 */
import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { draws, sampleCases } from "../harness/draws.js";
import { answers, QUANTIZER_NAMES } from "./cases.mjs";
import { CHROMIUM, NO_CHROMIUM } from "./chromium.js";
import { type Call, servePage } from "./server.js";

const IMPORTS = JSON.stringify({
  imports: {
    lockstep: "/dist/src/index.js",
    "#platform": "/dist/src/backends/platform/browser.js",
    "#reference": "/build/reference.binary.js",
  },
});
const PAGE = `<!doctype html><meta charset="utf-8"><script type="importmap">${IMPORTS}</script>
<script type="module" src="/conformance/tests/browser/page.mjs"></script>`;

const ISOLATED = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

/** A content security policy that allows the site's own scripts, its import map, its own workers, and `directives`. */
function policy(...directives: string[]): Readonly<Record<string, string>> {
  const map = `'sha256-${createHash("sha256").update(IMPORTS).digest("base64")}'`;
  return {
    "content-security-policy": `script-src 'self' ${map} ${directives.join(" ")}; worker-src 'self'`,
  };
}

interface Report {
  readonly isolated?: boolean;
  readonly results?: readonly unknown[];
  readonly error?: string;
}

let browser: Browser;

/** The results of the calls on a page with these headers. */
async function onPage(headers: Readonly<Record<string, string>>, calls: readonly Call[]): Promise<Report> {
  const server = await servePage(PAGE, calls, headers);
  const page = await browser.newPage();
  try {
    const broken = new Promise<never>((_, reject) => {
      page.once("pageerror", reject);
      page.once("crash", () => reject(new Error("the page crashed")));
      page.on("response", (answer) => {
        const { pathname } = new URL(answer.url());
        if (answer.status() === 404 && pathname !== "/favicon.ico")
          reject(new Error(`there is no ${pathname}`));
      });
    });
    await page.goto(server.url);
    return (await Promise.race([server.result, broken])) as Report;
  } finally {
    await page.close();
    await server.close();
  }
}

/** Products with enough work for three threads. */
const choices = fc.record({
  quantizer: fc.constantFrom(...QUANTIZER_NAMES),
  rows: fc.constantFrom(32, 64, 160),
  columns: fc.constantFrom(32, 128),
  depth: fc.constantFrom(128, 1024),
  bits: fc.array(fc.integer({ min: 0, max: 2 ** 32 - 1 }), { minLength: 1, maxLength: 2000 }),
  outDtype: fc.constant("bf16"),
});

type Cases = readonly (typeof choices extends fc.Arbitrary<infer T> ? T : never)[];

/** Draws lists of products. Each list is one call of a page. */
const drawnLists = (): readonly Cases[] =>
  fc.sample(fc.array(choices, { minLength: draws(4, 2), maxLength: draws(8, 2) }), draws(3, 1));

/** Fails unless a backend on the page had these properties and its results for the list are equal to Node's. */
async function expectSameAsNode(result: unknown, cases: Cases, properties: object): Promise<void> {
  const { digests } = await answers({ threads: 1 }, cases);
  expect(result, JSON.stringify(cases)).toMatchObject({ ...properties, digests, live: 0 });
}

/** Before the tests, opens one page with these headers, which makes the calls in order. Returns a function for its report. */
function usePage(headers: Readonly<Record<string, string>>, calls: readonly Call[]): () => Report {
  let report: Report = {};
  beforeAll(async () => {
    report = await onPage(headers, calls);
    expect(report.error).toBeUndefined();
  });
  return () => report;
}

describe.skipIf(!CHROMIUM)(`in Chromium${CHROMIUM ? "" : ` (skipped: ${NO_CHROMIUM})`}`, () => {
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: CHROMIUM as string });
  });
  afterAll(() => browser?.close());

  describe("a page that is cross-origin isolated", () => {
    const lists = drawnLists();
    const report = usePage(ISOLATED, [
      { name: "answers", args: [{}, []] },
      ...lists.map((cases) => ({ name: "answers", args: [{ threads: 3 }, cases] })),
      { name: "death", args: [] },
    ]);

    it("has as many threads as the host suggests, and reports no reason for fewer", () => {
      const { isolated: isIsolated, results = [] } = report();
      expect(isIsolated).toBe(true);
      expect(results[0]).not.toHaveProperty("fewerThreads", expect.anything());
    });

    it("computes what Node computes, on three threads", async () => {
      for (const [i, cases] of lists.entries())
        await expectSameAsNode(report().results?.[1 + i], cases, { threads: 3 });
    });

    it("reports a worker that failed, although its main thread gets no event while it waits", () => {
      const error = { code: "BACKEND", message: expect.stringMatching(/worker 1 of 2 ended.*open another/) };
      expect(report().results?.at(-1)).toEqual([error, error]);
    });
  });

  const PAGES = [
    ["that is not isolated", {}, /Cross-Origin-Opener-Policy: same-origin/, /threads: 1/],
    [
      "whose policy forbids workers from blob: URLs",
      { ...ISOLATED, ...policy("'wasm-unsafe-eval'") },
      /thread could not be started.*blob:/,
      /blob:/,
    ],
  ] as const;
  describe.each(sampleCases<(typeof PAGES)[number]>(PAGES, 1))("a page %s", (_, headers, why, refusal) => {
    const lists = drawnLists();
    const report = usePage(headers, [
      { name: "refusal", args: [{ threads: 2 }] },
      ...lists.map((cases) => ({ name: "answers", args: [{}, cases] })),
    ]);

    it("computes what Node computes on one thread, and reports the reason", async () => {
      const properties = { threads: 1, fewerThreads: expect.stringMatching(why) };
      for (const [i, cases] of lists.entries())
        await expectSameAsNode(report().results?.[1 + i], cases, properties);
    });

    it("refuses a requested number of threads", () => {
      expect(report().results?.[0]).toEqual({ code: "BACKEND", message: expect.stringMatching(refusal) });
    });
  });

  it("the error says that a page's policy forbids WebAssembly", async () => {
    const { results } = await onPage({ ...ISOLATED, ...policy() }, [{ name: "refusal", args: [{}] }]);
    expect(results).toEqual([{ code: "BACKEND", message: expect.stringContaining("'wasm-unsafe-eval'") }]);
  });
});
