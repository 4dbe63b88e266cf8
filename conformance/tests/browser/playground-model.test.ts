/** The playground shows what the library measures in Node of a model's folder, and reports a folder that it cannot read. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { layerErrors, meanBits } from "../../../playground/src/data/layers.js";
import { percent, show as showNumber } from "../../../playground/src/words.js";
import { openBackend } from "../../../src/backends/open.js";
import {
  type ConversionTarget,
  convertCheckpoint,
  type MeasuredWeight,
  measureForm,
  openCheckpoint,
} from "../../../src/checkpoints/index.js";
import { TINY, tinyModel, writeGguf, writeHub } from "../models/tiny-model.js";
import { CHROMIUM, NO_CHROMIUM } from "./chromium.js";
import { type Built, buildPlayground, show } from "./playground-page.js";

let browser: Browser;
let built: Built;
let root: string;

describe.skipIf(!CHROMIUM)(
  `a model's folder in Chromium${CHROMIUM ? "" : ` (skipped: ${NO_CHROMIUM})`}`,
  () => {
    beforeAll(async () => {
      root = await mkdtemp(join(tmpdir(), "lockstep-model-page-"));
      [browser, built] = await Promise.all([
        chromium.launch({ executablePath: CHROMIUM as string }),
        buildPlayground(),
      ]);
    }, 120_000);
    afterAll(async () => {
      await browser?.close();
      built?.remove();
      await rm(root, { recursive: true });
    });

    /** Runs `body` on the view of models, and then requires that the page has reported no error. */
    async function onPage(fragment: string, body: (page: Page) => Promise<void>): Promise<void> {
      const { page, faults, close } = await show(browser, `${built.file}#view=model${fragment}`);
      try {
        await body(page);
        expect(faults).toEqual([]);
      } finally {
        await close();
      }
    }

    async function measuredIn(path: string, to: ConversionTarget): Promise<readonly MeasuredWeight[]> {
      const checkpoint = await openCheckpoint(path);
      const backend = await openBackend("wasm", { threads: 1 });
      try {
        const weights: MeasuredWeight[] = [];
        for await (const weight of measureForm(checkpoint, { to, backend })) weights.push(weight);
        return weights;
      } finally {
        await checkpoint.close();
        await backend.dispose();
      }
    }

    /** Requires that the page shows the weights that Node measures. */
    async function requireShown(page: Page, path: string, to: ConversionTarget): Promise<void> {
      const weights = await measuredIn(path, to);
      await page.getByText(`: ${weights.length} of ${weights.length} matrices`).waitFor();
      const rows = await page
        .locator(".weights tbody tr")
        .evaluateAll((all) =>
          all.map((row) => [...row.children].slice(1, 6).map((cell) => cell.textContent)),
        );
      const expected = weights.map(({ name, shape, stored, converted }) => [
        `${name} [${shape.join(", ")}]`,
        stored.format,
        showNumber(stored.bits, 4),
        converted ? showNumber(converted.bits, 4) : "–",
        converted ? percent(converted.error) : "–",
      ]);
      expect(rows.toSorted()).toEqual(expected.toSorted());
      const { stored, form } = meanBits(weights);
      expect(await page.locator("#model-title ~ p strong").allTextContents()).toEqual([
        showNumber(stored, 4),
        showNumber(form, 4),
      ]);
      const [, largest = 0] = layerErrors(weights).reduce((best, each) => (each[1] > best[1] ? each : best));
      if (largest > 0) expect(await page.textContent("#layers-title ~ p")).toContain(percent(largest));
      for (const { converted } of weights)
        if (converted?.scales && converted.scales.counts.length > 0)
          expect(
            await page.locator(`svg[aria-label^="2^${converted.scales.first} to "]`).count(),
          ).toBeGreaterThan(0);
    }

    it("shows bits, errors and scales of safetensors, quantized and GGUF files, in the form that is chosen", async () => {
      const [wide, quantized, gguf] = ["wide", "quantized", "gguf"].map((name) => join(root, name)) as [
        string,
        string,
        string,
      ];
      await writeHub(wide, tinyModel(TINY), { shards: 2 });
      await convertCheckpoint(wide, quantized, { to: "ct-nvfp4" });
      await mkdir(gguf);
      await writeGguf(join(gguf, "model.gguf"), tinyModel(TINY), "F16");
      await onPage("&form=ct-mxfp8", async (page) => {
        await page.setInputFiles("#folder", wide);
        await requireShown(page, wide, "ct-mxfp8");
        await page.selectOption("select", "modelopt-fp8");
        await page.getByText("Error of each layer as modelopt-fp8").waitFor();
        await requireShown(page, wide, "modelopt-fp8");
        await page.setInputFiles("#folder", quantized);
        await page.getByText("quantized: ").waitFor();
        await requireShown(page, quantized, "modelopt-fp8");
        await page.setInputFiles("#folder", gguf);
        await page.getByText("gguf: ").waitFor();
        await requireShown(page, gguf, "modelopt-fp8");
        expect(new URLSearchParams(new URL(page.url()).hash.slice(1)).get("folder")).toBe("gguf");
      });
    });

    it("says why a folder is not read, and reads the next one", async () => {
      const [empty, damaged, sound] = ["empty", "damaged", "sound"].map((name) => join(root, name)) as [
        string,
        string,
        string,
      ];
      await mkdir(empty);
      await writeFile(join(empty, "config.json"), "{}");
      await mkdir(damaged);
      await writeFile(
        join(damaged, "model.gguf"),
        Uint8Array.of(71, 71, 85, 70, 3, 0, 0, 0, 255, 255, 255, 255),
      );
      await writeHub(sound, tinyModel(TINY));
      await onPage("", async (page) => {
        await page.setInputFiles("#folder", empty);
        await page.getByText(/has neither model\.safetensors\.index\.json nor/).waitFor();
        await page.setInputFiles("#folder", damaged);
        await page.getByText(/damaged\/model\.gguf: /).waitFor();
        await page.setInputFiles("#folder", sound);
        await requireShown(page, sound, "ct-nvfp4");
        expect(await page.locator(".fault").count()).toBe(0);
      });
    });

    it("reads files that are dropped on it", async () => {
      const path = join(root, "dropped");
      await writeHub(path, tinyModel(TINY));
      const bytes = (await readFile(join(path, "model.safetensors"))).toString("base64");
      await onPage("", async (page) => {
        await page.evaluate((text) => {
          const dropped = new DataTransfer();
          const content = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
          dropped.items.add(new File([content], "model.safetensors"));
          document
            .querySelector("main section")
            ?.dispatchEvent(
              new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }),
            );
        }, bytes);
        await requireShown(page, path, "ct-nvfp4");
      });
    });
  },
);
