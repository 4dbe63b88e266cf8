/**
 * The built package in a real browser gives the same bits as in Node, with and without threads. Pages without
 * WebAssembly threads get a clear answer.
 */
import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { type Browser, chromium } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { draws } from "../harness/draws.js";
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

/** A content security policy that allows the site's own scripts, its import map, its own workers, and `more`. */
function policy(...more: string[]): Readonly<Record<string, string>> {
  const map = `'sha256-${createHash("sha256").update(IMPORTS).digest("base64")}'`;
  return {
    "content-security-policy": `script-src 'self' ${map} ${more.join(" ")}; worker-src 'self'`,
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
const drawn = fc.record({
  quantizer: fc.constantFrom(...QUANTIZER_NAMES),
  rows: fc.constantFrom(32, 64, 160),
  columns: fc.constantFrom(32, 128),
  depth: fc.constantFrom(128, 1024),
  bits: fc.array(fc.integer({ min: 0, max: 2 ** 32 - 1 }), { minLength: 1, maxLength: 2000 }),
  outDtype: fc.constant("bf16"),
});

const sameAsNode = async (
  headers: Readonly<Record<string, string>>,
  options: object,
  says: object,
): Promise<void> => {
  await fc.assert(
    fc.asyncProperty(fc.array(drawn, { minLength: 4, maxLength: 8 }), async (cases) => {
      const { digests } = await answers({ threads: 1 }, cases);
      const { error, results } = await onPage(headers, [{ name: "answers", args: [options, cases] }]);
      expect(error).toBeUndefined();
      expect(results).toEqual([expect.objectContaining({ ...says, digests, live: 0 })]);
    }),
    { numRuns: draws(3, 1) },
  );
};

describe.skipIf(!CHROMIUM)(`in Chromium${CHROMIUM ? "" : ` (skipped: ${NO_CHROMIUM})`}`, () => {
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: CHROMIUM as string });
  });
  afterAll(() => browser?.close());

  describe("a page that is cross-origin isolated", () => {
    it("computes what Node computes, on three threads", async () => {
      await sameAsNode(ISOLATED, { threads: 3 }, { threads: 3 });
    });

    it("has as many threads as the host suggests, and reports no reason for fewer", async () => {
      const { isolated, results } = await onPage(ISOLATED, [{ name: "answers", args: [{}, []] }]);
      expect(isolated).toBe(true);
      expect(results).toEqual([expect.not.objectContaining({ fewerThreads: expect.anything() })]);
    });

    it("is told of a worker that broke, though its main thread gets no event while it waits", async () => {
      const { results } = await onPage(ISOLATED, [{ name: "death", args: [] }]);
      const error = { code: "BACKEND", message: expect.stringMatching(/worker 1 of 2 ended.*open another/) };
      expect(results).toEqual([[error, error]]);
    });
  });

  describe("a page that is not isolated", () => {
    it("computes what Node computes on one thread, and reports the headers that threads require", async () => {
      const why = expect.stringContaining("Cross-Origin-Opener-Policy: same-origin");
      await sameAsNode({}, {}, { threads: 1, fewerThreads: why });
    });

    it("refuses threads that are asked for", async () => {
      const { results } = await onPage({}, [{ name: "refusal", args: [{ threads: 2 }] }]);
      expect(results).toEqual([{ code: "BACKEND", message: expect.stringContaining("threads: 1") }]);
    });
  });

  describe("a page whose policy forbids workers from blob: URLs", () => {
    const headers = { ...ISOLATED, ...policy("'wasm-unsafe-eval'") };

    it("computes what Node computes on one thread, and reports the reason", async () => {
      const why = expect.stringMatching(/thread could not be started.*blob:/);
      await sameAsNode(headers, {}, { threads: 1, fewerThreads: why });
    });

    it("refuses threads that are asked for", async () => {
      const { results } = await onPage(headers, [{ name: "refusal", args: [{ threads: 2 }] }]);
      expect(results).toEqual([{ code: "BACKEND", message: expect.stringContaining("blob:") }]);
    });
  });

  it("the error says that a page's policy forbids WebAssembly", async () => {
    const { results } = await onPage({ ...ISOLATED, ...policy() }, [{ name: "refusal", args: [{}] }]);
    expect(results).toEqual([{ code: "BACKEND", message: expect.stringContaining("'wasm-unsafe-eval'") }]);
  });
});
