// Draws docs/pictures: the playground in an installed Chromium, light and dark, in the sizes of a desktop and a phone, at twice
// the resolution and with a title. The files are WebP, which Chromium encodes.
// Usage: npm run playground && node scripts/playground-pictures.mjs [FILE ...]
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

const DESK = { width: 1120, height: 760 };
const PHONE = { width: 390, height: 844 };
const SCALE = 2;
/** The quality at which Chromium encodes WebP. */
const QUALITY = 0.65;

/**
 * Each picture: its file, its title, its content and its settings. `from` is the selector of the element at its top, `gives` the
 * files that it chooses, and `until` the text that it waits for.
 */
const PICTURES = [
  { file: "value-light", title: "0.3 in every format", fragment: "x=0.3", size: DESK, scheme: "light" },
  ...["light", "dark"].map((scheme) => ({
    file: `tensor-${scheme}`,
    title: "A tensor in MXFP8 under two dialects: errors, codes, and why one element differs",
    fragment: "view=tensor",
    size: DESK,
    scheme,
    from: "#map-title",
  })),
  {
    file: "product-dark",
    title: "A dot product of e4m3 numbers on Hopper: the error along K, and one step",
    fragment: "view=product",
    size: DESK,
    scheme: "dark",
    from: "#sums-title",
  },
  {
    file: "scaled-product-light",
    title: "A step of block-scaled FP8 on Hopper: what it cuts, and how it joins the total",
    fragment:
      "view=product&k=512&split=1&operands=te/fp8-block/e4m3/1x128&operandsW=te/fp8-block/e4m3/128x128",
    size: DESK,
    scheme: "light",
    from: "#step-title",
  },
  {
    file: "stored-light",
    title: "A quantized weight of a file: its scales, codes, and one element",
    fragment: "view=tensor&source=file",
    size: DESK,
    scheme: "light",
    from: "#stored-title",
    gives: { input: "#file", files: quantizedFile },
  },
  {
    file: "model-light",
    title: "A model as NVFP4: the error of each layer, and the bits and scales of each matrix",
    fragment: "view=model",
    size: DESK,
    scheme: "light",
    from: "#layers-title",
    gives: { input: "#folder", files: modelFolder },
    until: "36 of 36 matrices",
  },
  { file: "value-phone-light", title: "0.3 on a phone", fragment: "x=0.3", size: PHONE, scheme: "light" },
  {
    file: "product-phone-dark",
    title: "A step of a dot product",
    fragment: "view=product",
    size: PHONE,
    scheme: "dark",
    from: "#step-title",
  },
];

const executablePath = CHROMIUM.find((path) => existsSync(path));
if (!executablePath) {
  console.error(`playground-pictures: no Chromium is installed: none of ${CHROMIUM.join(", ")} is there`);
  process.exit(1);
}
mkdirSync(FOLDER, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), "lockstep-pictures-"));
const browser = await chromium.launch({ executablePath });
const names = process.argv.slice(2);
for (const picture of PICTURES) if (names.length === 0 || names.includes(picture.file)) await draw(picture);
await browser.close();
rmSync(folder, { recursive: true });

async function draw({ file, title, fragment, size, scheme, from, gives, until }) {
  const page = await browser.newPage({ viewport: size, colorScheme: scheme, deviceScaleFactor: SCALE });
  await page.goto(`${PAGE}#${fragment}`);
  await page.waitForSelector("main h2");
  await page.waitForTimeout(500);
  if (gives) {
    await page.setInputFiles(gives.input, await gives.files());
    if (until) await page.getByText(until).waitFor();
    await page.waitForSelector(from);
    await page.waitForTimeout(500);
  }
  const top = await page.evaluate(addTitle, title);
  if (from)
    await page
      .locator(`section:has(${from})`)
      .first()
      .evaluate((element, space) => scrollBy(0, element.getBoundingClientRect().top - space), top);
  const path = fileURLToPath(new URL(`${file}.webp`, FOLDER));
  const bytes = await encode(await page.screenshot());
  writeFileSync(path, bytes);
  console.log(`${path}: ${(bytes.length / 1000).toFixed(0)} kB`);
  await page.close();
}

/** Shows a title above the page, and returns the height that it takes with a margin. Runs in the page. */
function addTitle(title) {
  const bar = document.createElement("p");
  bar.textContent = title;
  const { backgroundColor, color } = getComputedStyle(document.body);
  Object.assign(bar.style, {
    ...{ position: "fixed", inset: "0 0 auto 0", zIndex: "9", margin: "0", padding: "12px 24px" },
    ...{ background: backgroundColor, color, font: "600 19px/1.3 system-ui, sans-serif" },
  });
  document.body.append(bar);
  const { height } = bar.getBoundingClientRect();
  document.body.style.paddingTop = `${height}px`;
  return height + 8;
}

/** Encodes a PNG file as WebP. */
async function encode(png) {
  const page = await browser.newPage();
  const text = await page.evaluate(
    async ([base64, quality]) => {
      const image = new Image();
      image.src = `data:image/png;base64,${base64}`;
      await image.decode();
      const canvas = document.createElement("canvas");
      Object.assign(canvas, { width: image.width, height: image.height });
      canvas.getContext("2d").drawImage(image, 0, 0);
      return canvas.toDataURL("image/webp", quality);
    },
    [png.toString("base64"), QUALITY],
  );
  await page.close();
  return Buffer.from(text.slice(text.indexOf(",") + 1), "base64");
}

/** Writes an MXFP8 weight, some of whose rows are large, and returns the path of the file. */
async function quantizedFile() {
  const backend = await openBackend("wasm");
  const [rows, columns] = [96, 256];
  const values = normal({ seed: 5n, offset: 0n }, rows * columns, 0.02).map((x, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    return x * (row % 17 === 3 ? 8 : 1) * (column % 61 === 7 ? 20 : 1);
  });
  const weight = quantizerOf({ dialect: "te", quantizer: "mxfp8" }).quantize(
    tensor(backend, values, [rows, columns]),
  );
  const path = join(folder, "model.safetensors");
  await saveTensors(path, { "layers.0.weight": weight });
  await backend.dispose();
  return path;
}

/** Writes a model of 12 layers, in which some weights of middle layers are large, and returns its folder. */
async function modelFolder() {
  const backend = await openBackend("wasm");
  const [layers, size] = [12, 128];
  const weights = {};
  for (let layer = 0; layer < layers; layer++) {
    for (const [i, name] of ["self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"].entries()) {
      const outlier = 1 + 24 * Math.exp(-((layer - 4 - 2 * i) ** 2) / 6);
      const seed = BigInt(layers * i + layer);
      const values = normal({ seed, offset: 0n }, size * size, 0.02).map((x, at) =>
        at % 16 === 5 ? x * outlier : x,
      );
      weights[`model.layers.${layer}.${name}.weight`] = tensor(backend, values, [size, size]);
    }
  }
  const path = join(folder, "a-model");
  mkdirSync(path);
  await saveTensors(join(path, "model.safetensors"), weights);
  await backend.dispose();
  return path;
}
