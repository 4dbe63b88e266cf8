/**
 * Quantized weights of other libraries in the playground are paired as `lockstep inspect` pairs them, and have the library's
 * values.
 */
import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readWeight } from "../../../../playground/src/data/checkpoint.js";
import { openFile } from "../../../../playground/src/data/file.js";
import type { Stored } from "../../../../playground/src/data/stored.js";
import { openReference, scaleIndex } from "../../../../playground/src/reference/index.js";
import { readWeightRegion } from "../../../../src/checkpoints/regions/weight.js";
import { codeRows } from "../../../../src/checkpoints/stored/code-rows.js";
import { CODE_TYPES, scalarFormatOf } from "../../../../src/checkpoints/stored/code-types.js";
import { type ConventionName, conventionOf } from "../../../../src/checkpoints/stored/conventions.js";
import { dequantizedRows } from "../../../../src/checkpoints/stored/dequantize.js";
import { openCheckpointFiles } from "../../../../src/checkpoints/stored/open.js";
import { readScales, scaleOf } from "../../../../src/checkpoints/stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../../../src/checkpoints/stored/weight.js";
import { type Survey, surveyFiles } from "../../../../src/checkpoints/survey.js";
import { valueOfCode } from "../../../../src/formats/derive.js";
import { MemorySource } from "../../../../src/io/source.js";
import { FIXTURES, inFolder, VECTORS } from "../../checkpoints/files/checkpoints.js";
import { float, KINDS, weights } from "../../checkpoints/files/weights.js";
import { draws, sampleCases } from "../../harness/draws.js";

let backend: Awaited<ReturnType<typeof openReference>>;
beforeAll(async () => {
  backend = await openReference();
});
afterAll(() => backend.dispose());

/** A file as a browser passes it to the page. */
const fileOf = (path: string) => new File([readFileSync(path)], basename(path));

/** A fixture on the page, with or without its configurations, and the command line's description of the same files. */
async function openCheckpoint(
  name: string,
  isConfigured: boolean,
  body: (survey: OpenedCheckpoint) => Promise<void>,
) {
  await inFolder(async (folder) => {
    for (const fileName of readdirSync(join(VECTORS, name)))
      if (isConfigured || !fileName.endsWith(".json"))
        copyFileSync(join(VECTORS, name, fileName), join(folder, fileName));
    const configurations = readdirSync(folder).filter((fileName) => fileName.endsWith(".json"));
    const checkpoint = await openCheckpointFiles(folder);
    try {
      const page = await openFile(
        fileOf(join(folder, "model.safetensors")),
        configurations.map((configuration) => fileOf(join(folder, configuration))),
      );
      await body({ page, survey: await surveyFiles(checkpoint) });
    } finally {
      await checkpoint.close();
    }
  });
}
interface OpenedCheckpoint {
  readonly page: Awaited<ReturnType<typeof openFile>>;
  readonly survey: Survey;
}

/** All codes and values of a weight, and its number of rows and columns as a matrix. */
async function wholeOf(weight: QuantizedWeight) {
  const [matrices, rows, columns] = matricesOf(weight.shape);
  const [values, codes] = [
    new Float32Array(matrices * rows * columns),
    new Uint8Array(matrices * rows * columns),
  ];
  for await (const dequantizedRow of dequantizedRows(weight))
    values.set(dequantizedRow.values, dequantizedRow.at);
  for await (const codeRow of codeRows(weight))
    codes.set(codeRow.codes, (codeRow.matrix * rows + codeRow.row) * columns);
  return { values, codes, rows: matrices * rows, columns, scales: await readScales(weight) };
}

/** Throws unless a part has the codes, scales and values of the whole, and holds an element. */
function requirePart(
  stored: Stored,
  { values, codes, rows, columns, scales }: Awaited<ReturnType<typeof wholeOf>>,
  { type }: QuantizedWeight,
  [row, column]: readonly [number, number],
) {
  const [top, left] = stored.from;
  const expected = [Math.min(row, rows - 1), Math.min(column, columns - 1)] as const;
  expect(top <= expected[0] && expected[0] < top + stored.rows).toBe(true);
  expect(left <= expected[1] && expected[1] < left + stored.columns).toBe(true);
  expect(stored.rows <= 512 && stored.columns <= 512).toBe(true);
  expect(stored.scales.whole).toBe(scales.storedGlobal);
  for (let rowIndex = 0; rowIndex < stored.rows; rowIndex++)
    for (let columnIndex = 0; columnIndex < stored.columns; columnIndex++) {
      const [position, from] = [
        rowIndex * stored.columns + columnIndex,
        (top + rowIndex) * columns + left + columnIndex,
      ];
      const coordinates = `[${top + rowIndex}, ${left + columnIndex}]`;
      if (stored.codes[position] !== codes[from]) throw new Error(`code ${coordinates}`);
      if (!Object.is(stored.values[position], values[from]))
        throw new Error(`value ${coordinates}: ${stored.values[position]}`);
      const element = CODE_TYPES[type].values[codes[from] as number] as number;
      if (!Object.is(stored.elements[position], element)) throw new Error(`element ${coordinates}`);
      const index = scaleIndex(stored, rowIndex, columnIndex);
      const { format, codes: scaleCodes, values: ofBlocks } = stored.scales;
      const code = scaleCodes[index] as number;
      const decodedValue = format === "f32" ? float(code) : valueOfCode(format, code);
      if (!Object.is(decodedValue, ofBlocks[index])) throw new Error(`code of the scale ${coordinates}`);
      const scale = scaleOf(scales, decodedValue);
      if (!Object.is(Math.fround(element * scale), values[from])) throw new Error(`scale ${coordinates}`);
    }
}

const corner = fc.tuple(fc.nat(700), fc.nat(1500));

describe.each([true, false])(
  "a checkpoint of another library, with its configuration: %s",
  (isConfigured) => {
    it.each(FIXTURES)(
      "%s has the weights, conventions and values that the command line has",
      async (name) => {
        await openCheckpoint(name, isConfigured, async ({ page, survey }) => {
          const kinds = survey.weights.map((weight) => [weight.name, weight.convention]);
          expect(Array.from(page.quantized, ([weightName, { kind }]) => [weightName, kind])).toEqual(kinds);
          expect(survey.weights.length + survey.unfit.length).toBeGreaterThan(0);
          for (const weight of survey.weights) {
            const fullWeight = await wholeOf(weight);
            for (const corner of [
              [0, 0],
              [9, 21],
              [700, 1500],
            ] as const) {
              const storedPart = await page.readStored(backend, weight.name, corner[0], corner[1]);
              requirePart(storedPart, fullWeight, weight, corner);
              const { summary } = conventionOf(weight.convention);
              expect(storedPart.description).toContain(`${weight.convention}: ${summary}`);
              expect(storedPart.description).toContain(`[${weight.shape.join(", ")}]`);
            }
          }
        });
      },
    );

    it.each(sampleCases(FIXTURES, 4))("%s shows no codes and no parts of weights as values", async (name) => {
      await openCheckpoint(name, isConfigured, async ({ page, survey }) => {
        const tensorNames = survey.weights.flatMap(({ codes, scale, global }) => [
          codes,
          scale,
          ...(global ? [global] : []),
        ]);
        const refusedNames = [
          ...tensorNames.map(({ entry }) => entry.name),
          ...survey.unfit.flatMap((weight) => weight.parts),
        ];
        for (const { name: tensor, dtype } of page.tensors.values())
          if (/^F[468]/.test(dtype)) expect(refusedNames).toContain(tensor);
        for (const tensor of refusedNames)
          await expect(page.read(tensor, 0, 0)).rejects.toThrow(/weight|part of/);
        for (const { entry } of survey.plain) expect(page.faults.has(entry.name)).toBe(false);
      });
    });
  },
);

/** The page's statement about the first weight of a fixture. */
async function notesOf(name: string, isConfigured: boolean): Promise<readonly string[]> {
  const notes: string[] = [];
  await openCheckpoint(name, isConfigured, async ({ page }) => {
    const [weight = ""] = page.quantized.keys();
    notes.push(...(await page.readStored(backend, weight, 0, 0)).notes);
  });
  return notes;
}

describe("the page's notes on conventions", () => {
  it("names the conventions that fit a file without its configuration, and the claim of one with it", async () => {
    const [firstNote = ""] = await notesOf("modelopt-fp8", false);
    expect(firstNote).toMatch(
      /^Without config\.json these fit: ct-float: .*; modelopt-fp8: .*The first is taken/,
    );
    expect(await notesOf("modelopt-fp8", true)).toEqual(["config.json says modelopt, FP8."]);
    expect(await notesOf("ct-nvfp4", false)).toEqual([]);
    expect(await notesOf("gpt-oss", true)).toEqual(["config.json says mxfp4."]);
    const file = fileOf(join(VECTORS, "ct-nvfp4", "model.safetensors"));
    const page = await openFile(file, [fileOf(join(VECTORS, "gpt-oss", "config.json"))]);
    const [name = ""] = page.quantized.keys();
    expect((await page.readStored(backend, name, 0, 0)).notes).toEqual([
      "config.json says mxfp4, which is not the convention of the tensors.",
    ]);
  });

  it("says why scales do not fit, and that a configuration may say more", async () => {
    await openCheckpoint("transformers-fp8", false, async ({ page }) => {
      expect([...page.quantized]).toEqual([]);
      const name = "model.layers.0.mlp.down_proj.weight";
      await expect(page.read(name, 0, 0)).rejects.toThrow(
        /^block-fp8: .*weight_scale_inv is F32 \[2,2\]; codes of \[32,64\] need \[1,1\].*Drop config\.json together/,
      );
    });
  });

  it.each(["F8_E4M3", "F8_E5M2", "F4"] as const)(
    "does not decode %s without a scale, and says so",
    async (dtype) => {
      const plan = [
        { name: "a.weight", dtype, shape: [4, 32], data_offsets: [0, dtype === "F4" ? 64 : 128] },
      ];
      const header = Buffer.from(
        JSON.stringify(Object.fromEntries(plan.map(({ name, ...rest }) => [name, rest]))),
      );
      const length = Buffer.from(BigUint64Array.of(BigInt(header.length)).buffer);
      const page = await openFile(
        new File([length, header, new Uint8Array(dtype === "F4" ? 64 : 128)], "a.safetensors"),
      );
      await expect(page.read("a.weight", 0, 0)).rejects.toThrow(
        new RegExp(`^a\\.weight: ${dtype} \\[4,32\\] has none of a\\.weight_scale.*restore the scale`),
      );
    },
  );

  it.each([
    ["config.json", "{", /^config\.json: /],
    ["config.json", "[]", /^config\.json: must be a JSON object/],
    ["other.json", "{}", /^other\.json: the page opens one file/],
  ])("is an error about %s with %s", async (name, text, message) => {
    const file = fileOf(join(VECTORS, "ct-nvfp4", "model.safetensors"));
    await expect(openFile(file, [new File([text], name)])).rejects.toThrow(message);
  });
});

/** Weights of several matrices, with blocks that may be larger than the part that the page shows, or end at any code. */
const largeWeights: fc.Arbitrary<QuantizedWeight> = fc
  .record({
    convention: fc.constantFrom<ConventionName>("ct-float", "ct-int4", "ct-mxfp6"),
    matrices: fc.integer({ min: 1, max: 3 }),
    rows: fc.constantFrom(1, 7, 300, 600),
    eighths: fc.constantFrom(1, 20, 65, 150),
    block: fc.tuple(fc.constantFrom(1, 5, 128, 513, 600), fc.constantFrom(1, 3, 100, 128, 513, 650, 1200)),
    seed: fc.nat(),
  })
  .map(({ convention, matrices, rows, eighths, block, seed }) => {
    const { type } = conventionOf(convention);
    const columns = 8 * eighths;
    const grid = [Math.ceil(rows / block[0]), Math.ceil(columns / block[1])] as const;
    const [count, scales] = [matrices * rows * columns, matrices * grid[0] * grid[1]];
    const bytes = Uint8Array.from(
      { length: (count * CODE_TYPES[type].bits) / 8 },
      (_, i) => (i * 37 + seed) >> (i % 3),
    );
    const values = Float32Array.from({ length: scales }, (_, i) => 1 + ((i * 7919 + seed) % 1009) / 64);
    const shard = new MemorySource("made", [
      { name: "codes", dtype: "U8", shape: [bytes.length], bytes },
      { name: "scale", dtype: "F32", shape: [scales], bytes: new Uint8Array(values.buffer) },
    ]);
    const tensor = (name: string) => ({ shard, entry: shard.entry(name) });
    return {
      name: "w",
      convention,
      type,
      shape: [matrices, rows, columns],
      codes: tensor("codes"),
      scale: tensor("scale"),
      geometry: { kind: "tile", block, grid, swizzled: false },
    };
  });

/** Reads a part of a weight as the page does. */
function readPart(weight: QuantizedWeight, corner: readonly [number, number]): Promise<Stored> {
  const { name, convention, type, shape, geometry, codes, scale, global } = weight;
  const format = scalarFormatOf(type);
  const page = {
    ...{ name, convention, fits: [convention], isDeclared: false, type, shape, isElementwise: true },
    ...{ scaleKind: geometry.kind, block: geometry.block, swizzled: geometry.swizzled },
    ...{ codes: codes.entry, scale: scale.entry, companions: [], notes: [] },
    ...(format ? { format } : {}),
    ...(global ? { global: global.entry } : {}),
  };
  return readWeight((_, region) => readWeightRegion(weight, region), page, corner);
}

describe("a part of a weight", () => {
  const kinds = KINDS.filter(({ convention }) => conventionOf(convention).container === undefined);
  it.each(kinds)(
    "of $convention, $kind, $scale has the codes, scales and values of the whole",
    async (kind) => {
      await fc.assert(
        fc.asyncProperty(weights(kind), corner, async ({ weight }, corner) => {
          requirePart(await readPart(weight, corner), await wholeOf(weight), weight, corner);
        }),
        { numRuns: draws(8) },
      );
    },
  );

  it("has them for blocks of any size, larger than what is shown or ending within a byte", async () => {
    await fc.assert(
      fc.asyncProperty(largeWeights, fc.tuple(fc.nat(1800), fc.nat(1300)), async (weight, corner) => {
        requirePart(await readPart(weight, corner), await wholeOf(weight), weight, corner);
      }),
      { numRuns: draws(25) },
    );
  });

  it("is refused for a weight without elements", async () => {
    const [weight] = fc.sample(largeWeights, 1) as [QuantizedWeight];
    await expect(readPart({ ...weight, shape: [0, 32] }, [0, 0])).rejects.toThrow(/^w is empty: \[0,32\]/);
  });
});
