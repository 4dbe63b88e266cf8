/**
 * The playground in a real browser shows the bits that the library gives in Node. Its address contains its whole state. It works
 * with keys only, on a phone, offline, without threads, and with a screen reader.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type axe from "axe-core";
import * as fc from "fast-check";
import {
  encode,
  OVERFLOWS,
  openBackend,
  quantizerOf,
  ROUNDINGS,
  SCALAR_FORMATS,
  type ScalarFormat,
  Scope,
  tensor,
} from "lockstep";
import { saveTensors } from "lockstep/io";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { drawNumbers } from "../../../playground/src/data/distribution.js";
import { readParams } from "../../../playground/src/params.js";
import {
  answerOrReason,
  CHOICES,
  compare,
  explainProduct,
  keyOf,
  type Operand,
  quantize,
} from "../../../playground/src/reference/index.js";
import { conventionOf } from "../../../src/checkpoints/stored/conventions.js";
import { openCheckpointFiles } from "../../../src/checkpoints/stored/open.js";
import { matricesOf } from "../../../src/checkpoints/stored/weight.js";
import { surveyFiles } from "../../../src/checkpoints/survey.js";
import { partsOf } from "../../../src/io/codes.js";
import { FILE_DTYPES, type FileDType } from "../../../src/io/dtypes.js";
import { VECTORS, valuesIn } from "../checkpoints/files/checkpoints.js";
import { draws, sampleCases } from "../harness/draws.js";
import { CHROMIUM, NO_CHROMIUM } from "./chromium.js";
import { type Built, buildPlayground, type Look, type Shown, serveUnder, show } from "./playground-page.js";

type Backend = Awaited<ReturnType<typeof openBackend>>;

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const VIEWS = ["value", "tensor", "product", "model"] as const;
const LOOKS: readonly Look[] = [
  { scheme: "light" },
  { scheme: "dark" },
  { width: 360, scheme: "light" },
  { width: 360, scheme: "dark" },
];

let browser: Browser;
let builtPage: Built;
let backend: Backend;

/** Runs `body` on a page at a fragment, and then requires that the page has reported no error. */
async function openAt(fragment: string, body: (page: Shown) => Promise<void>, look?: Look): Promise<void> {
  const page = await show(browser, `${builtPage.file}#${fragment}`, look);
  try {
    await body(page);
    expect(page.faults).toEqual([]);
  } finally {
    await page.close();
  }
}

/** Waits until the requested view is drawn. */
async function waitUntilDrawn(page: Page): Promise<void> {
  await page.evaluate(
    () =>
      new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve)))),
  );
}

/** Goes to another fragment of the page and waits until it is drawn. */
async function goTo(page: Page, fragment: string): Promise<void> {
  await page.evaluate((to) => {
    const hrefBefore = location.href;
    const change = new Promise((resolve) => addEventListener("hashchange", resolve, { once: true }));
    location.hash = to;
    return location.href === hrefBefore ? undefined : change.then(() => undefined);
  }, fragment);
  await waitUntilDrawn(page);
}

/** The violations that axe finds on a page. */
async function violations(page: Page): Promise<readonly string[]> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { axe: tool } = globalThis as typeof globalThis & { readonly axe: typeof axe };
    const { violations } = await tool.run();
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  });
}

/** The number of pixels by which the page is wider than the screen. */
function overflowWidth(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
}

/**
 * Requires that axe finds no violation on a page and that the page is not wider than the screen, in themes that `salt` chooses.
 */
async function isAccessible(page: Page, salt: number): Promise<void> {
  for (const look of sampleCases(LOOKS, 1, salt)) {
    await page.setViewportSize({ width: look.width ?? 1280, height: 900 });
    await page.emulateMedia({ colorScheme: look.scheme ?? "light" });
    await waitUntilDrawn(page);
    expect(await violations(page), JSON.stringify(look)).toEqual([]);
    expect(await overflowWidth(page)).toBe(0);
  }
}

const hexOf = (bits: number) => bits.toString(16).padStart(8, "0");

describe.skipIf(!CHROMIUM)(
  `the playground in Chromium${CHROMIUM ? "" : ` (skipped: ${NO_CHROMIUM})`}`,
  () => {
    beforeAll(async () => {
      browser = await chromium.launch({ executablePath: CHROMIUM as string });
      builtPage = await buildPlayground();
      backend = await openBackend("wasm", { threads: 1 });
    });
    afterAll(async () => {
      await browser?.close();
      await backend?.dispose();
      builtPage?.remove();
    });

    it("shows the codes and bits that the library gives for any f32, rounding and overflow", async () => {
      const singleFormat = fc.oneof(
        fc.integer({ min: 0, max: 2 ** 32 - 1 }),
        fc.constantFrom(0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x00000001, 0x43e80000, 0x3e800000),
      );
      await openAt("", async ({ page }) => {
        const rounding = fc.constantFrom(...ROUNDINGS);
        const overflow = fc.constantFrom(...OVERFLOWS);
        await fc.assert(
          fc.asyncProperty(singleFormat, rounding, overflow, async (bits, roundingName, overflowName) => {
            await goTo(page, `x=0x${hexOf(bits)}&rounding=${roundingName}&overflow=${overflowName}`);
            const rows = await page.$$eval(".formats tbody tr", (elements) =>
              elements.map((row) =>
                ["th", ".cell-code", ".cell-bits"].map(
                  (selector) => row.querySelector(selector)?.textContent,
                ),
              ),
            );
            using _ = new Scope();
            const x = tensor(backend, new Float32Array(Uint32Array.of(bits, bits).buffer), [1, 2]);
            const expected = (Object.keys(SCALAR_FORMATS) as ScalarFormat[]).map((format) => {
              const { exponentBits, mantissaBits, signed } = SCALAR_FORMATS[format];
              const width = exponentBits + mantissaBits + (signed ? 1 : 0);
              const [first = 0] = encode(x, {
                format,
                rounding: roundingName,
                overflow: overflowName,
              }).dataSync() as ArrayLike<number> & Iterable<number>;
              const code = width > 4 ? first : first % 16;
              const hex = code
                .toString(16)
                .toUpperCase()
                .padStart(Math.ceil(width / 4), "0");
              return [format, `0x${hex}`, code.toString(2).padStart(width, "0")];
            });
            expect(rows).toEqual(expected);
          }),
          { numRuns: draws(40) },
        );
      });
    });

    it("quantizes a tensor under every dialect as the library does, and counts and marks where two differ", async () => {
      const distribution = "student(3)";
      const [rows, columns, seed] = [40, 72, 5];
      const values = drawNumbers(distribution, rows * columns, BigInt(seed)) as Float32Array;
      const quantizedTensors = CHOICES.map((choice) =>
        quantize(backend, { rows, columns, values, dtype: "bf16" }, choice),
      );
      await openAt(
        `view=tensor&draw=${distribution}&rows=${rows}&columns=${columns}&seed=${seed}`,
        async ({ page }) => {
          const options = await page.$$eval(".side-a option", (elements) =>
            elements.map((option) => (option as HTMLOptionElement).value),
          );
          expect(options.sort()).toEqual(CHOICES.map(keyOf).sort());
          for (const [i, a] of sampleCases([...quantizedTensors.entries()], 4)) {
            const b = quantizedTensors[(i * 7 + 3) % quantizedTensors.length] as typeof a;
            const { different } = compare(a, b);
            const firstDifference = different[0] ?? 0;
            const [row, column] = [Math.floor(firstDifference / columns), firstDifference % columns];
            await goTo(
              page,
              `view=tensor&draw=${distribution}&rows=${rows}&columns=${columns}&seed=${seed}&a=${keyOf(a.choice)}&b=${keyOf(b.choice)}`,
            );
            const pageState = await page.evaluate(() => ({
              count: document.querySelector(".costs + p strong")?.textContent,
              title: document.querySelector("#element-title")?.textContent,
              cell: [...document.querySelectorAll('.cells [aria-pressed="true"] code')].map(
                (code) => code.textContent,
              ),
              isMarked: document.querySelector('.cells [aria-pressed="true"]')?.className,
              why: document.querySelectorAll(".why p").length,
            }));
            const hex = (q: typeof a) => {
              const { exponentBits, mantissaBits } = SCALAR_FORMATS[q.choice.format];
              const digits = Math.ceil((1 + exponentBits + mantissaBits) / 4);
              return (q.codes[firstDifference] as number).toString(16).toUpperCase().padStart(digits, "0");
            };
            expect(pageState).toEqual({
              count: different.length.toLocaleString("en"),
              title: expect.stringContaining(`Row ${row}, column ${column}:`),
              cell: [hex(a), hex(b)],
              isMarked: different.length > 0 ? "value" : expect.stringMatching(/none|code/),
              why: expect.any(Number),
            });
            expect(pageState.why).toBeGreaterThan(0);
          }
        },
      );
    }, 400_000);

    it("sums a dot product as the library does, with scales and splits, and names the step that loses most", async () => {
      const distributions = { px: "normal(0, 1) + outliers(2%, 60)", pw: "student(4)" };
      const [x, w] = [
        drawNumbers(distributions.px, 200, 1n),
        drawNumbers(distributions.pw, 200, 2n),
      ] as Float32Array[];
      const operands: readonly Operand[] = [
        "e4m3",
        "bf16",
        ...CHOICES.filter(({ dialect }) => dialect === "te"),
      ];
      const usedKinds = new Set<string>();
      await openAt("view=product", async ({ page }) => {
        for (const [i, datapath] of (["hopper", "ada", "blackwell", "fp32", "exact"] as const).entries())
          for (const operand of sampleCases(operands, 3, i)) {
            const splitK = datapath === "hopper" ? 2 : 1;
            const fragment = new URLSearchParams({
              view: "product",
              ...distributions,
              ...{ k: "200", datapath, splitK: String(splitK) },
              operands: typeof operand === "string" ? operand : keyOf(operand),
            });
            await goTo(page, String(fragment));
            const answer = answerOrReason(() =>
              explainProduct(backend, x as Float32Array, w as Float32Array, {
                ...{ x: operand, w: operand, datapath, splitAccumulator: false, splitK },
              }),
            );
            if (typeof answer === "string") {
              expect(await page.textContent(".fault")).toBe(answer);
              continue;
            }
            const [name, sum] = await page.$$eval(".results tbody tr:first-child > *", (cells) =>
              cells.map((cell) => cell.textContent),
            );
            const { explained, steps } = answer;
            usedKinds.add(`${explained.plan.datapath} ${explained.staging} ${explained.promotion}`);
            expect(name).toBe(splitK > 1 ? `${explained.plan.datapath}, 2 splits` : explained.plan.datapath);
            expect(Math.fround(Number(sum?.replace("−", "-").replace("e−", "e-")))).toBe(explained.out.value);
            const losses = steps.map(({ step: { exact, result } }) => Math.abs(exact - result));
            const worst = steps[losses.indexOf(Math.max(...losses))]?.step;
            // the accumulator before, the terms, the sum after
            expect(await page.locator(".alignment tbody tr").count()).toBe(
              worst ? worst.terms.length + 2 : 0,
            );
          }
        await goTo(page, "view=product&datapath=hopper&operands=e3m4");
        expect(await page.textContent(".fault")).toMatch(/does not multiply/);
      });
      const kinds = [
        "hopper-fp8 plain none",
        "hopper-fp8 plain scaleChain",
        "hopper-half bf16 none",
        "blackwell-narrow scaled none",
        "blackwell-fp4 grouped none",
      ];
      // a short run has only some operands, and not every kind of sum among them
      expect(kinds.filter((kind) => usedKinds.has(kind)).length).toBeGreaterThanOrEqual(
        draws(kinds.length, 2),
      );
    });

    it("has examples each of which computes without a fault", async () => {
      await openAt("view=product", async ({ page }) => {
        for (const example of await page.locator(".examples .chip").all()) {
          await example.click();
          await waitUntilDrawn(page);
          expect(await page.locator(".fault").count(), (await example.textContent()) ?? "").toBe(0);
          expect(await page.locator(".alignment tbody tr").count()).toBeGreaterThan(2);
        }
        expect(new URL(page.url()).hash).toContain("splitK=2");
      });
    });

    it("shows a file's quantized tensor as it is stored: codes, scale, block and value, by keys too", async () => {
      using _ = new Scope();
      const [rows, columns] = [40, 96];
      const values = drawNumbers("student(3)", rows * columns, 3n) as Float32Array;
      const quantizedTensor = quantizerOf({ dialect: "te", quantizer: "mxfp8" }).quantize(
        tensor(backend, values, [rows, columns]),
      );
      const folder = mkdtempSync(join(tmpdir(), "lockstep-page-"));
      const path = join(folder, "q.safetensors");
      await saveTensors(path, { weight: quantizedTensor });
      const { data, scaleInv } = quantizedTensor.copy("rowwise");
      const [codes, scales] = [data, scaleInv].map((member) => member.dataSync() as Uint8Array);
      const wholeValues = quantizedTensor.dequantize("f32").dataSync() as Float32Array;
      await openAt("view=tensor&source=file", async ({ page }) => {
        await page.setInputFiles("#file", path);
        await page.waitForSelector("#stored-title");
        expect(readParams(new URL(page.url()).hash).tensor).toBe("weight");
        for (const [row, column] of [
          [0, 0],
          [39, 95],
          [17, 40],
        ] as const) {
          await goTo(
            page,
            `${new URL(page.url()).hash.slice(1).replace(/&at=[^&]*/, "")}&at=${row},${column}`,
          );
          const panel = page.locator("section:has(#stored-title)");
          const hex = (code = 0) => code.toString(16).toUpperCase().padStart(2, "0");
          const index = row * columns + column;
          expect(await panel.locator('.cells [aria-pressed="true"] code').textContent()).toBe(
            hex(codes?.[index]),
          );
          expect(await panel.locator("dd code").allTextContents()).toEqual([
            `0x${hex(codes?.[index])}`,
            `0x${hex(scales?.[row * 3 + Math.floor(column / 32)])}`,
          ]);
          const title = ((await panel.locator("h3").textContent()) ?? "").split(": ")[1] ?? "";
          expect(Math.fround(Number(title.replace("−", "-").replace("e−", "e-")))).toBe(wholeValues[index]);
          expect(await panel.textContent()).toContain(
            `rows ${row} to ${row}, columns ${column - (column % 32)} to ${column - (column % 32) + 31}`,
          );
        }
        await page.locator('section:has(#stored-title) .cells [aria-pressed="true"]').focus();
        await page.keyboard.press("ArrowRight");
        expect(
          await page.locator("#stored-title ~ * h3, section:has(#stored-title) h3").first().textContent(),
        ).toMatch(/^Row 17, column 41:/);
        for (const kind of ["codes", "values"]) {
          await page.getByRole("button", { name: kind, exact: true }).click();
          expect(
            await page.locator(`.chart[aria-label="${kind} of 40 by 96 elements as stored"]`).count(),
          ).toBe(1);
        }
        await isAccessible(page, 1);
      });
      rmSync(folder, { recursive: true });
    });

    it.each(
      sampleCases(
        ["ct-nvfp4", "ct-mxfp4", "ct-fp8-block", "modelopt-nvfp4", "transformers-fp8", "gpt-oss"],
        1,
      ),
    )("shows codes, scales and values of %s, chosen with its configuration", async (name) => {
      const folder = join(VECTORS, name);
      const files = readdirSync(folder).map((name) => join(folder, name));
      const checkpoint = await openCheckpointFiles(folder);
      const { weights } = await surveyFiles(checkpoint);
      const weight = weights[0] as (typeof weights)[number];
      const values = (await valuesIn(folder)).get(weight.name) as Float64Array;
      const [, rows, columns] = matricesOf(weight.shape);
      await checkpoint.close();
      await openAt("view=tensor&source=file", async ({ page }) => {
        await page.setInputFiles("#file", files);
        await page.waitForSelector("#stored-title");
        expect(readParams(new URL(page.url()).hash)).toMatchObject({
          file: "model.safetensors",
          tensor: weight.name,
        });
        const panel = page.locator("section:has(#stored-title)");
        expect(await panel.textContent()).toContain(
          `${weight.convention}: ${conventionOf(weight.convention).summary}`,
        );
        expect(await panel.textContent()).toMatch(/config\.json says /);
        for (const [row, column] of [
          [0, 0],
          [rows - 1, columns - 1],
          [5, 9],
        ] as const) {
          await goTo(
            page,
            `${new URL(page.url()).hash.slice(1).replace(/&at=[^&]*/, "")}&at=${row},${column}`,
          );
          const title = ((await panel.locator("h3").textContent()) ?? "").split(": ")[1] ?? "";
          const value = Number(title.replaceAll("−", "-"));
          expect(
            Object.is(Math.fround(value), Math.fround(values[row * columns + column] as number)),
            title,
          ).toBe(true);
        }
        await isAccessible(page, 2);
        await page.getByLabel("Tensor of model.safetensors").selectOption(weight.scale.entry.name);
        await page.waitForSelector(".fault");
        expect(await page.textContent(".fault")).toBe(
          `${weight.scale.entry.name} is part of ${weight.name}, which the page shows.`,
        );
        expect(await violations(page)).toEqual([]);
      });
    });

    it.each([
      ["F32", 4, (x: number) => new Uint8Array(Float32Array.of(x).buffer)],
      ["BF16", 2, (x: number) => new Uint8Array(Float32Array.of(x).buffer).slice(2)],
    ] as const)(
      "reads %s tensors of a safetensors file that is chosen, from any row and column",
      async (dtype, size, bytesOf) => {
        const [rows, columns] = [64, 96];
        const values = Array.from({ length: rows * columns }, (_, i) => (i % 250) - 100);
        const file = safetensors(
          { "model.weight": { dtype, shape: [rows, columns], data: values.map(bytesOf) } },
          size,
        );
        await openAt("view=tensor&source=file", async ({ page }) => {
          expect(await page.textContent(".hint")).toMatch(/Drop a safetensors file/);
          await page.setInputFiles("#file", { name: "a.safetensors", mimeType: "", buffer: file });
          await page.waitForSelector("#element-title");
          for (const [row, column] of [
            [0, 0],
            [3, 5],
            [63, 95],
          ] as const) {
            await page.getByLabel(/From row, column/).fill(`${row},${column}`);
            await page.waitForFunction(
              (label) =>
                document.querySelector(".map [role=img]")?.getAttribute("aria-label")?.includes(label),
              `of ${rows - row} by ${columns - column} elements`,
            );
            await goTo(page, `${new URL(page.url()).hash.slice(1)}&at=0,0`);
            expect(await page.textContent("#element-title .digits")).toBe(
              `${values[row * columns + column]}`.replace("-", "−"),
            );
          }
          expect(readParams(new URL(page.url()).hash)).toMatchObject({
            file: "a.safetensors",
            tensor: "model.weight",
          });
        });
      },
    );

    it("reads a file that is dropped on it, and a tensor of any type that has values without a scale", async () => {
      const rows = Object.entries(FILE_DTYPES).filter(([, { bits }]) => bits >= 8 || bits === 4);
      const bytes = Uint8Array.from({ length: 64 }, (_, i) => (i * 37 + 11) % 256);
      const tensors = rows.map(([dtype, { bits }]) => {
        const shape = [2, (bytes.length * 8) / bits / 2];
        return [dtype, { dtype, shape, data: Array.from(bytes, (byte) => Uint8Array.of(byte)) }] as const;
      });
      const file = safetensors(Object.fromEntries(tensors), 1).toString("base64");
      const noValues = ["F4", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"];
      expect(tensors.map(([dtype]) => dtype)).toEqual(expect.arrayContaining(noValues));
      await openAt("view=tensor", async ({ page }) => {
        await page.evaluate((text) => {
          const transfer = new DataTransfer();
          transfer.items.add(
            new File(
              [Uint8Array.from(atob(text), (character) => character.charCodeAt(0))],
              "all.safetensors",
            ),
          );
          const target = document.querySelector("#source-title")?.closest("section");
          target?.dispatchEvent(
            new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }),
          );
        }, file);
        for (const [dtype, { shape }] of sampleCases(tensors, 5)) {
          await page.getByLabel("Tensor of all.safetensors").selectOption(dtype);
          await page.getByLabel("Input type").selectOption("f32");
          if (noValues.includes(dtype)) {
            await page.waitForFunction(
              (start) => document.querySelector(".fault")?.textContent?.startsWith(start),
              `${dtype}: ${dtype} [${shape}] `,
            );
            expect(await page.locator("#element-title").count()).toBe(0);
            continue;
          }
          await page.waitForFunction(
            (size) => document.querySelector(".map [role=img]")?.getAttribute("aria-label")?.includes(size),
            `of ${shape[0]} by ${shape[1]} elements`,
          );
          await goTo(page, `${new URL(page.url()).hash.slice(1)}&at=1,1`);
          const [code = 0n] = codesOf(bytes, FILE_DTYPES[dtype as FileDType].bits).slice(
            (shape[1] as number) + 1,
          );
          const value = Math.fround(Number(partsOf(dtype as FileDType, code)[0]));
          const digits = (await page.textContent("#element-title .digits")) as string;
          const shownValue = Number(digits.replaceAll("−", "-").replace("∞", "Infinity"));
          // nine digits are shown
          const isNear =
            Object.is(shownValue, value) || Math.abs(shownValue - value) <= 1e-8 * Math.abs(value);
          expect(isNear, `${dtype}: ${digits}, ${value}`).toBe(true);
        }
      });
    });

    it("reports the fault of a file that is not safetensors, and reads the next file", async () => {
      const broken = fc.oneof(
        fc.uint8Array({ maxLength: 64 }),
        fc.string().map((text) => {
          const header = Buffer.from(text);
          return Buffer.concat([Buffer.from(BigUint64Array.of(BigInt(header.length)).buffer), header]);
        }),
      );
      await openAt("view=tensor&source=file", async ({ page }) => {
        await fc.assert(
          fc.asyncProperty(broken, async (bytes) => {
            await page.setInputFiles("#file", {
              name: "b.safetensors",
              mimeType: "",
              buffer: Buffer.from(bytes),
            });
            await page.waitForFunction(() =>
              /b\.safetensors: /.test(document.querySelector(".hint, .fault")?.textContent ?? ""),
            );
          }),
          { numRuns: draws(12) },
        );
      });
    });

    it("has a link for what it shows: another page that opens it shows the same", async () => {
      await openAt("", async ({ page }) => {
        await page.getByLabel(/Number, or/).fill("1/3");
        await page.getByLabel("Rounding").selectOption("toOdd");
        await page.getByRole("button", { name: "e5m2", exact: true }).click();
        await page.getByRole("link", { name: "Tensor" }).click();
        await page.getByRole("button", { name: "pasted numbers" }).click();
        await page.getByLabel(/Numbers; each line/).fill("1 2 3\n4 5 1000");
        await page.getByLabel("Dialect B").selectOption({ label: "ocp-mxfp4: e2m1, 1x32" });
        await page.getByRole("button", { name: "scale", exact: true }).click();
        await page.getByRole("button", { name: "dark" }).click();
        const texts = async (textsOn: Page) => {
          await waitUntilDrawn(textsOn);
          return textsOn.$eval("main", (main) => {
            const copy = main.cloneNode(true) as Element;
            // a chart is drawn later, when its width is known
            for (const chart of copy.querySelectorAll(".chart")) chart.replaceChildren();
            return copy.textContent;
          });
        };
        const inTensor = await texts(page);
        await openAt(new URL(page.url()).hash.slice(1), async ({ page: otherPage }) => {
          expect(await texts(otherPage)).toBe(inTensor);
          expect(await otherPage.getByLabel(/Numbers; each line/).inputValue()).toBe("1 2 3\n4 5 1000");
          expect(await otherPage.evaluate(() => getComputedStyle(document.documentElement).colorScheme)).toBe(
            "dark",
          );
        });
        await page.goBack();
        await waitUntilDrawn(page);
        expect(await page.textContent("#detail-title")).toBe("e5m2");
        expect(await page.getByLabel(/Number, or/).inputValue()).toBe("1/3");
        await page.goForward();
        expect(await texts(page)).toBe(inTensor);
      });
    });

    it("reports no error for any address", async () => {
      await openAt("", async ({ page }) => {
        const names = Object.keys(readParams(""));
        const wild = fc.oneof(
          fc.string(),
          // beyond f32, and beyond f64
          fc.constantFrom("1e39", "-1e308", "1e400", "normal(0, 1e39)", "ramp(-1e39, 1)", "first(1, 1e300)"),
          fc.constantFrom("normal(0, 1) + outliers(1%, 1e39)", "1e39 1e-60", "normal(0, -1)", "student(-1)"),
          fc.constantFrom("-1", "1e9", "NaN", "__proto__", "constructor", "0,0", "9999,9999", "%"),
        );
        await fc.assert(
          fc.asyncProperty(
            fc.constantFrom(...VIEWS),
            fc.dictionary(fc.constantFrom(...names), wild),
            async (view, params) => {
              await goTo(page, String(new URLSearchParams({ ...params, view })));
              expect(await page.locator("main h2").count()).toBeGreaterThan(0);
            },
          ),
          { numRuns: draws(40) },
        );
      });
    });

    it("is used by keys: Tab reaches every control, and arrows move among the codes", async () => {
      await openAt("view=tensor&at=3,4", async ({ page }) => {
        const stops = await page
          .locator("main :is(input, select, button, textarea):not([tabindex='-1']):not(:disabled)")
          .count();
        const reachedControls = new Set<string>();
        for (let i = 0; i < stops + 10; i++) {
          await page.keyboard.press("Tab");
          reachedControls.add(
            await page.evaluate(
              () => document.activeElement?.closest("section")?.getAttribute("aria-labelledby") ?? "",
            ),
          );
          if (await page.evaluate(() => document.activeElement?.matches(".cells button"))) break;
        }
        expect([...reachedControls]).toEqual(
          expect.arrayContaining(["source-title", "dialects-title", "map-title", "cells-title"]),
        );
        for (const key of ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowLeft", "PageDown"])
          await page.keyboard.press(key);
        expect(await page.textContent("#element-title")).toContain("Row 21, column 3:");
        expect(await page.evaluate(() => document.activeElement?.getAttribute("aria-pressed"))).toBe("true");
      });
    });

    it.each(
      sampleCases(
        VIEWS.flatMap((view) => LOOKS.map((look) => ({ view, look }))),
        2,
      ),
    )(
      "axe finds no violation in the view $view, and it is not wider than the screen: $look",
      async ({ view, look }) => {
        await openAt(
          `view=${view}`,
          async ({ page }) => {
            expect(await violations(page)).toEqual([]);
            expect(await overflowWidth(page)).toBe(0);
          },
          look,
        );
      },
    );

    it("lists few of 50,000 tensors, finds each by a part of its name, and stays quick", async () => {
      const tensors = Array.from({ length: 50_000 }, (_, i) => {
        return [`layer.${i}.weight`, { dtype: "F32", shape: [0, 4], data: [] }] as const;
      });
      const seven = Array.from(new Uint8Array(Float32Array.of(7).buffer), (byte) => Uint8Array.of(byte));
      const entry = ["the.last.one", { dtype: "F32", shape: [1, 1], data: seven }] as const;
      const buffer = safetensors(Object.fromEntries([...tensors, entry]), 1);
      await openAt("view=tensor&source=file", async ({ page }) => {
        await page.setInputFiles("#file", { name: "many.safetensors", mimeType: "", buffer });
        const list = page.getByLabel("Tensor of many.safetensors");
        expect(await list.locator("option").count()).toBeLessThanOrEqual(500);
        const begun = performance.now();
        await page.getByLabel(/^Part of a name/).fill("last");
        await list.selectOption("the.last.one");
        await page.waitForSelector("#element-title");
        expect(await page.textContent("#element-title")).toContain("7");
        expect(performance.now() - begun).toBeLessThan(20_000);
      });
    });

    it("runs no other script and sends nothing, as its content security policy says", async () => {
      const { page, faults, close } = await show(browser, builtPage.file);
      try {
        expect(faults).toEqual([]);
        const outcomes = await page.evaluate(async () => {
          const script = document.createElement("script");
          script.textContent = "globalThis.foreign = true";
          document.head.append(script);
          const image = new Image();
          const drop = new Promise((resolve) => {
            image.onload = () => resolve("loaded");
            image.onerror = () => resolve("refused");
          });
          image.src = "http://127.0.0.1:9/picture.png";
          const fetchResult = await fetch("data:,text").then(
            () => "fetched",
            () => "refused",
          );
          return { foreign: "foreign" in globalThis, fetched: fetchResult, image: await drop };
        });
        expect(outcomes).toEqual({ foreign: false, fetched: "refused", image: "refused" });
        // each refusal is an error of the console
        expect(faults.length).toBeGreaterThan(2);
      } finally {
        await close();
      }
    });

    it("works from a disk without a network, and asks for nothing but itself", async () => {
      const context = await browser.newContext({ offline: true });
      const page = await context.newPage();
      const requests: string[] = [];
      page.on("request", (request) => requests.push(request.url()));
      await page.goto(`${builtPage.file}#view=tensor`);
      await page.waitForSelector(".chart svg");
      expect(requests.filter((url) => !url.startsWith("data:"))).toEqual([
        expect.stringContaining(builtPage.file),
      ]);
      await context.close();
    });

    it("works under any path of a host, on a page that is not isolated, on one thread", async () => {
      const server = await serveUnder("/some/folder/page.html", builtPage.bytes);
      const { page, requests, faults, close } = await show(browser, `${server.url}#view=product`);
      try {
        expect(await page.evaluate(() => crossOriginIsolated)).toBe(false);
        expect(await page.locator(".alignment tbody tr").count()).toBeGreaterThan(30);
        expect(requests.filter((url) => !url.startsWith("data:"))).toEqual([
          expect.stringContaining(server.url),
        ]);
        expect(faults).toEqual([]);
      } finally {
        await close();
        server.close();
      }
    });
  },
);

/** The codes of bytes, lowest bits first. */
function codesOf(bytes: Uint8Array, bits: number): readonly bigint[] {
  const value = bytes.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  return Array.from({ length: (bytes.length * 8) / bits }, (_, i) =>
    BigInt.asUintN(bits, value >> BigInt(i * bits)),
  );
}

interface FileTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: readonly Uint8Array[];
}

/** A safetensors file of one kind of elements. */
function safetensors(tensors: Readonly<Record<string, FileTensor>>, size: number): Buffer {
  let begin = 0;
  const header = Object.fromEntries(
    Object.entries(tensors).map(([name, { dtype, shape, data }]) => {
      const end = begin + data.length * size;
      const entry = { dtype, shape, data_offsets: [begin, end] };
      begin = end;
      return [name, entry];
    }),
  );
  const text = Buffer.from(JSON.stringify(header));
  const data = Object.values(tensors).flatMap((tensor) => tensor.data);
  return Buffer.concat([Buffer.from(BigUint64Array.of(BigInt(text.length)).buffer), text, ...data]);
}
