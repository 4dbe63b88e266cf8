// Draws docs/pictures: the playground in an installed Chromium, light and dark, in the sizes of a desktop and a phone.
// Usage: npm run playground && node scripts/playground-pictures.mjs
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { normal, openBackend, quantizerOf, tensor } from "lockstep";
import { saveTensors } from "lockstep/io";
import { chromium } from "playwright-core";

const PAGE = new URL("../out/playground/index.html", import.meta.url).href;
const FOLDER = new URL("../docs/pictures/", import.meta.url);
const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

const DESK = { width: 1120, height: 720 };
const PHONE = { width: 390, height: 844 };

/** Each picture: its file, its content and its settings. `from` is the selector of the element at its top. */
const PICTURES = [
  { file: "value-light", fragment: "x=0.3", size: DESK, scheme: "light" },
  { file: "tensor-light", fragment: "view=tensor", size: DESK, scheme: "light", from: "#map-title" },
  { file: "tensor-dark", fragment: "view=tensor", size: DESK, scheme: "dark", from: "#map-title" },
  { file: "product-dark", fragment: "view=product", size: DESK, scheme: "dark", from: "#sums-title" },
  {
    file: "scaled-product-light",
    fragment:
      "view=product&k=512&split=1&operands=te/fp8-block/e4m3/1x128&operandsW=te/fp8-block/e4m3/128x128",
    size: DESK,
    scheme: "light",
    from: "#step-title",
  },
  {
    file: "stored-light",
    fragment: "view=tensor&source=file",
    size: DESK,
    scheme: "light",
    from: "#stored-title",
    drops: true,
  },
  { file: "value-phone-light", fragment: "x=0.3", size: PHONE, scheme: "light" },
  { file: "product-phone-dark", fragment: "view=product", size: PHONE, scheme: "dark", from: "#step-title" },
];

const executablePath = CHROMIUM.find((path) => existsSync(path));
if (!executablePath) {
  console.error(`playground-pictures: no Chromium is installed: none of ${CHROMIUM.join(", ")} is there`);
  process.exit(1);
}
mkdirSync(FOLDER, { recursive: true });
const files = await quantizedFile();
const browser = await chromium.launch({ executablePath });
for (const { file, fragment, size, scheme, from, drops } of PICTURES) {
  const page = await browser.newPage({ viewport: size, colorScheme: scheme });
  await page.goto(`${PAGE}#${fragment}`);
  await page.waitForSelector("main h2");
  await page.waitForTimeout(500);
  if (drops) {
    await page.setInputFiles("#file", join(files, "model.safetensors"));
    await page.waitForSelector(from);
    await page.waitForTimeout(500);
  }
  if (from)
    await page
      .locator(`section:has(${from})`)
      .first()
      .evaluate((top) => scrollBy(0, top.getBoundingClientRect().top - 12));
  const path = fileURLToPath(new URL(`${file}.png`, FOLDER));
  const bytes = await page.screenshot();
  writeFileSync(path, bytes);
  console.log(`${path}: ${(bytes.length / 1000).toFixed(0)} kB`);
  await page.close();
}
await browser.close();
rmSync(files, { recursive: true });

/** Writes an MXFP8 weight, some of whose rows are large, into a new folder and returns the folder. */
async function quantizedFile() {
  const folder = mkdtempSync(join(tmpdir(), "lockstep-pictures-"));
  const backend = await openBackend("wasm");
  const [rows, columns] = [96, 256];
  const values = normal({ seed: 5n, offset: 0n }, rows * columns, 0.02).map((x, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    return x * (row % 17 === 3 ? 8 : 1) * (column % 61 === 7 ? 20 : 1);
  });
  const weight = quantizerOf({ dialect: "te", quantizer: "mxfp8" }).quantize(
    tensor(backend, values, [rows, columns]),
  );
  await saveTensors(join(folder, "model.safetensors"), { "layers.0.weight": weight });
  await backend.dispose();
  return folder;
}
