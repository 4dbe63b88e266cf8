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
      (choice) => choice.quantizer === quantizer && choice.format === format && choice.tile === tile,
    ) === i,
).flatMap((choice) => {
  const { padding }: BlockFormat = BLOCK_FORMATS[choice.quantizer];
  const layouts = padding === "tiles" ? LAYOUTS : LAYOUTS.slice(0, 2);
  return layouts.map((scaleLayout) => ({ ...choice, scaleLayout }));
});

/** The file with a quantized tensor, and the codes, scales and values of the full tensor. */
async function saveQuantized(form: (typeof FORMS)[number], rows: number, columns: number, seed: number) {
  const scope = new Scope();
  try {
    const values = Float32Array.from(
      words(seed, rows * columns),
      (bits, i) => ((bits >>> 8) / 2 ** 23 - 1) * 2 ** (((i >> 7) % 9) - 4),
    );
    const quantizedTensor = quantizerOf(form).quantize(tensor(backend, values, [rows, columns]));
    const path = join(folder, "a.safetensors");
    await saveTensors(path, { "model.weight": quantizedTensor });
    const file = new File([readFileSync(path)], "a.safetensors");
    return { file, ...wholeOf(quantizedTensor) };
  } finally {
    scope.dispose();
  }
}

function wholeOf(quantizedTensor: QuantizedTensor) {
  return {
    values: (quantizedTensor.dequantize("f32") as Tensor<"f32">).dataSync().slice(),
    elements: decode(quantizedTensor.copy("rowwise").data).dataSync().slice(),
    amax: quantizedTensor.copy("rowwise").amax?.dataSync()[0],
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
          const { file, values, elements, amax } = await saveQuantized(form, rows, columns, seed);
          const checkpointFile = await openFile(file);
          expect([...checkpointFile.quantized.keys()]).toEqual(["model.weight"]);
          const storedPart = await checkpointFile.readStored(backend, "model.weight", row, column);
          const [top, left] = storedPart.from;
          // it begins at the requested element or earlier, at the start of a block
          expect(top <= Math.min(row, rows - 1) && left <= Math.min(column, columns - 1)).toBe(true);
          expect(top + storedPart.rows > Math.min(row, rows - 1)).toBe(true);
          expect(left + storedPart.columns > Math.min(column, columns - 1)).toBe(true);
          expect(storedPart.scales.whole).toBe(amax);
          for (let rowIndex = 0; rowIndex < storedPart.rows; rowIndex++)
            for (let columnIndex = 0; columnIndex < storedPart.columns; columnIndex++) {
              const [position, from] = [
                rowIndex * storedPart.columns + columnIndex,
                (top + rowIndex) * columns + left + columnIndex,
              ];
              if (!Object.is(storedPart.values[position], values[from]))
                throw new Error(`value [${rowIndex}, ${columnIndex}]`);
              if (!Object.is(storedPart.elements[position], elements[from]))
                throw new Error(`code [${rowIndex}, ${columnIndex}]`);
              const scale = storedPart.scales.values[scaleIndex(storedPart, rowIndex, columnIndex)] as number;
              const product = Math.fround((storedPart.elements[position] as number) * scale);
              if (amax === undefined && !Object.is(product, storedPart.values[position]))
                throw new Error(`scale [${rowIndex}, ${columnIndex}]`);
            }
        }),
        { numRuns: draws(4) },
      );
    },
  );

  it("is refused with its name where a part of it is missing or is empty", async () => {
    const { file } = await saveQuantized(FORMS[0] as (typeof FORMS)[number], 4, 128, 1);
    const text = Buffer.from(await file.arrayBuffer()).toString("latin1");
    const otherFile = Buffer.from(text.replaceAll("rowwise.scale_inv", "rowwise.scale_out"), "latin1");
    const renamedFile = new File([otherFile], "b.safetensors");
    const checkpointFile = await openFile(renamedFile);
    await expect(checkpointFile.readStored(backend, "model.weight", 0, 0)).rejects.toThrow(
      /b\.safetensors: tensor "model.weight.rowwise.scale_inv" is needed and not there/,
    );
    await expect(checkpointFile.readStored(backend, "other", 0, 0)).rejects.toThrow(
      /no quantized tensor other/,
    );
  });
});
