/** Quantized tensors of a file in the playground: any part of a tensor has the codes, scales and values of the full tensor. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import {
  BLOCK_FORMATS,
  type BlockFormat,
  decode,
  type QuantizedTensor,
  quantizerOf,
  Scope,
  type Tensor,
  tensor,
} from "lockstep";
import { saveTensors } from "lockstep/io";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openFile } from "../../../../playground/src/data/file.js";
import { CHOICES, openReference, scaleIndex } from "../../../../playground/src/reference/index.js";
import { words } from "../../../arbitraries/random.js";
import { draws, sampleCases } from "../../harness/draws.js";

let backend: Awaited<ReturnType<typeof openReference>>;
let folder: string;
beforeAll(async () => {
  backend = await openReference();
  folder = mkdtempSync(join(tmpdir(), "lockstep-stored-"));
});
afterAll(async () => {
  expect(backend.memoryUse().live).toBe(0);
  await backend.dispose();
  rmSync(folder, { recursive: true });
});

const LAYOUTS = ["logical", "padded", "swizzled"] as const;

/** A dialect for each quantizer, format and tile, with each layout of scales. */
const FORMS = CHOICES.filter(
  ({ quantizer, format, tile }, i) =>
    CHOICES.findIndex(
      (each) => each.quantizer === quantizer && each.format === format && each.tile === tile,
    ) === i,
).flatMap((choice) => {
  const { padding }: BlockFormat = BLOCK_FORMATS[choice.quantizer];
  const layouts = padding === "tiles" ? LAYOUTS : LAYOUTS.slice(0, 2);
  return layouts.map((scaleLayout) => ({ ...choice, scaleLayout }));
});

/** The file with a quantized tensor, and the codes, scales and values of the full tensor. */
async function saved(form: (typeof FORMS)[number], rows: number, columns: number, seed: number) {
  const scope = new Scope();
  try {
    const values = Float32Array.from(
      words(seed, rows * columns),
      (word, i) => ((word >>> 8) / 2 ** 23 - 1) * 2 ** (((i >> 7) % 9) - 4),
    );
    const made = quantizerOf(form).quantize(tensor(backend, values, [rows, columns]));
    const path = join(folder, "a.safetensors");
    await saveTensors(path, { "model.weight": made });
    const file = new File([readFileSync(path)], "a.safetensors");
    return { file, ...wholeOf(made) };
  } finally {
    scope.dispose();
  }
}

function wholeOf(made: QuantizedTensor) {
  return {
    values: (made.dequantize("f32") as Tensor<"f32">).dataSync().slice(),
    elements: decode(made.copy("rowwise").data).dataSync().slice(),
    amax: made.copy("rowwise").amax?.dataSync()[0],
  };
}

describe("a quantized tensor of a file", () => {
  it.each(sampleCases(FORMS, 10))(
    "has its codes, scales and values, $quantizer $format $tile, $scaleLayout scales",
    async (form) => {
      const sizes = fc.record({
        rows: fc.integer({ min: 1, max: 290 }),
        columns: fc.integer({ min: 1, max: 6 }).map((count) => 128 * count),
        seed: fc.nat(),
        row: fc.nat(400),
        column: fc.nat(900),
      });
      await fc.assert(
        fc.asyncProperty(sizes, async ({ rows, columns, seed, row, column }) => {
          const { file, values, elements, amax } = await saved(form, rows, columns, seed);
          const opened = await openFile(file);
          expect([...opened.quantized.keys()]).toEqual(["model.weight"]);
          const part = await opened.readStored(backend, "model.weight", row, column);
          const [top, left] = part.from;
          // it begins at the requested element or earlier, at the start of a block
          expect(top <= Math.min(row, rows - 1) && left <= Math.min(column, columns - 1)).toBe(true);
          expect(top + part.rows > Math.min(row, rows - 1)).toBe(true);
          expect(left + part.columns > Math.min(column, columns - 1)).toBe(true);
          expect(part.scales.whole).toBe(amax);
          for (let r = 0; r < part.rows; r++)
            for (let c = 0; c < part.columns; c++) {
              const [at, from] = [r * part.columns + c, (top + r) * columns + left + c];
              if (!Object.is(part.values[at], values[from])) throw new Error(`value [${r}, ${c}]`);
              if (!Object.is(part.elements[at], elements[from])) throw new Error(`code [${r}, ${c}]`);
              const scale = part.scales.values[scaleIndex(part, r, c)] as number;
              const product = Math.fround((part.elements[at] as number) * scale);
              if (amax === undefined && !Object.is(product, part.values[at]))
                throw new Error(`scale [${r}, ${c}]`);
            }
        }),
        { numRuns: draws(4) },
      );
    },
  );

  it("is refused with its name where a part of it is missing or is empty", async () => {
    const { file } = await saved(FORMS[0] as (typeof FORMS)[number], 4, 128, 1);
    const text = Buffer.from(await file.arrayBuffer()).toString("latin1");
    const other = Buffer.from(text.replaceAll("rowwise.scale_inv", "rowwise.scale_out"), "latin1");
    const renamed = new File([other], "b.safetensors");
    const opened = await openFile(renamed);
    await expect(opened.readStored(backend, "model.weight", 0, 0)).rejects.toThrow(
      /b\.safetensors: tensor "model.weight.rowwise.scale_inv" is needed and not there/,
    );
    await expect(opened.readStored(backend, "other", 0, 0)).rejects.toThrow(/no quantized tensor other/);
  });
});
