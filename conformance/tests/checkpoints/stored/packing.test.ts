/** Packed integers, zero points, orders of groups and factors of columns have the values that plain loops compute. */
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CODE_TYPES } from "../../../../src/checkpoints/stored/code-types.js";
import { type ConventionName, conventionOf } from "../../../../src/checkpoints/stored/conventions.js";
import { unpackedTensor } from "../../../../src/checkpoints/stored/packing.js";
import type { PackingName } from "../../../../src/checkpoints/stored/packing-names.js";
import { toFloats } from "../../../../src/checkpoints/stored/scales.js";
import { MemorySource } from "../../../../src/io/source.js";
import { swizzledIndex } from "../../../../src/tensor/places.js";
import { share } from "../../arbitraries/share.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import {
  convertTo,
  errorsIn,
  inFolder,
  readContents,
  reportOf,
  type StoredTensor,
  valuesIn,
  writeContents,
} from "../files/checkpoints.js";
import {
  addWeight,
  configFor,
  contentsOf,
  drawsFrom,
  type Form,
  GROUP,
  type Options,
} from "../files/drawn-files.js";

const backend = useBackend();
const MODULE = "model.layers.0.mlp.down_proj";

interface Drawn extends Options {
  readonly form: Form;
  readonly rows: number;
  readonly columns: number;
  readonly seed: number;
  /** Whether there is a configuration. The shape of the file may make it unnecessary. */
  readonly hasConfig: boolean;
}

const WORDS = [1, 2, 3, 4, 5, 6, 7, 8].map((bits) => (bits === 8 ? "ct-int8-packed" : `ct-int${bits}`));

/** Weights of conventions whose codes are not stored element by element, or that subtract or multiply something. */
const cases: fc.Arbitrary<Drawn> = fc
  .record({
    name: fc.constantFrom(
      ...(WORDS as ConventionName[]),
      ...(["ct-int8", "torchao-int8", "modelopt-int4", "comfy-nvfp4", "modelopt-w4a8-nvfp4"] as const),
      ...(["mlx-nvfp4", "mlx-mxfp8", "mlx-mxfp4", "modelopt-nvfp4"] as const),
    ),
    kind: fc.nat(),
    rows: fc.integer({ min: 1, max: 20 }),
    groups: fc.integer({ min: 1, max: 4 }),
    columns: fc.integer({ min: 33, max: 90 }),
    seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    flags: fc.record({
      zeros: fc.boolean(),
      order: fc.boolean(),
      factors: fc.boolean(),
      hasConfig: fc.boolean(),
    }),
  })
  .map(({ name, kind, rows, groups, columns, seed, flags }) => {
    const row = conventionOf(name);
    const scaleKind = row.kinds[kind % row.kinds.length] ?? "group";
    const isWords = row.codes.packing === "words";
    return {
      form: { name, kind: scaleKind },
      rows: row.codes.packing === "rows" ? 2 * rows : rows,
      columns: scaleKind === "group" ? groups * (row.group ?? GROUP) : isWords ? columns : 16 * groups,
      seed,
      hasConfig: flags.hasConfig,
      zeros: flags.zeros && row.zeros !== undefined && scaleKind !== "whole",
      order: flags.order && row.order !== undefined && scaleKind === "group",
      factors: flags.factors && row.factors !== undefined,
    };
  });

/** The values of a drawn weight, element by element. */
function valuesOf(
  tensors: ReadonlyMap<string, StoredTensor>,
  { form, rows, columns, factors }: Drawn,
  expectedWeight: ReturnType<typeof addWeight>,
): number[] {
  const row = conventionOf(form.name);
  const get = (end: string | undefined): StoredTensor => tensors.get(MODULE + end) as StoredTensor;
  const scale = get(row.scale.suffix);
  const isE4m3 = row.scale.values !== undefined;
  const scales = toFloats(isE4m3 ? "F8_E4M3" : scale.dtype, scale.bytes);
  const globalScale = row.global ? (toFloats("F32", get(row.global.suffix).bytes)[0] as number) : 1;
  const columnFactors = factors ? toFloats("F32", get(row.factors).bytes) : undefined;
  const group = row.group ?? GROUP;
  const scalesPerRow = form.kind === "group" ? columns / group : 1;
  return expectedWeight.codes.map((code, i) => {
    const [line, column] = [Math.floor(i / columns), i % columns];
    const scaleColumn =
      form.kind === "group" ? (expectedWeight.groups?.[column] ?? Math.floor(column / group)) : 0;
    const index = form.kind === "whole" ? 0 : line * scalesPerRow + scaleColumn;
    const place = row.swizzles ? swizzledIndex(line, scaleColumn, scalesPerRow) : index;
    const block = Math.fround((scales[place] as number) * globalScale);
    const value = (CODE_TYPES[row.type].values[code] as number) - (expectedWeight.points?.[index] ?? 0);
    expect(line).toBeLessThan(rows);
    return value * block * (columnFactors?.[column] ?? 1);
  });
}

describe("packed weights", () => {
  it("have the values of plain loops, and no error", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (testCase) => {
        const tensors = new Map<string, StoredTensor>();
        const { form, rows, columns, seed, hasConfig } = testCase;
        const expectedWeight = addWeight(tensors, MODULE, form, [rows, columns], drawsFrom(seed), testCase);
        await inFolder(async (folder) => {
          await writeContents(folder, contentsOf(tensors, hasConfig ? configFor(form, testCase) : undefined));
          const { findings, weights } = await reportOf(folder);
          expect(errorsIn(findings)).toEqual([]);
          expect(weights.map(({ shape, type }) => [shape, type])).toEqual([
            [[rows, columns], conventionOf(form.name).type],
          ]);
          const values = (await valuesIn(folder)).get(`${MODULE}.weight`);
          expect(Array.from(values ?? [])).toEqual(valuesOf(tensors, testCase, expectedWeight));
        });
      }),
      { numRuns: draws(40) },
    );
  });

  it("are converted to f32 with these values, and none of their tensors remains", async () => {
    await fc.assert(
      fc.asyncProperty(cases, async (testCase) => {
        const tensors = new Map<string, StoredTensor>();
        const { form, rows, columns, seed } = testCase;
        const expectedWeight = addWeight(tensors, MODULE, form, [rows, columns], drawsFrom(seed), testCase);
        await inFolder(async (folder) => {
          await writeContents(folder, contentsOf(tensors, configFor(form, testCase)));
          const out = join(folder, "out");
          await convertTo(backend(), folder, out, "f32");
          const { tensors: convertedTensors } = await readContents(out);
          expect([...convertedTensors.keys()]).toEqual([`${MODULE}.weight`]);
          const bytes = convertedTensors.get(`${MODULE}.weight`)?.bytes ?? new Uint8Array();
          expect(Array.from(toFloats("F32", bytes))).toEqual(
            valuesOf(tensors, testCase, expectedWeight).map(Math.fround),
          );
        });
      }),
      { numRuns: draws(20) },
    );
  });

  it.each([
    ["W8A16 per channel, which has four codes in a word", "ct-int8-packed", "row"],
    ["W8A16 in groups", "ct-int8-packed", "group"],
    ["W2A16 in groups", "ct-int2", "group"],
  ] as const)("%s, is no int4", async (_, name, kind) => {
    const tensors = new Map<string, StoredTensor>();
    addWeight(tensors, MODULE, { name, kind }, [4, 64], drawsFrom(1));
    for (const config of [configFor({ name, kind }), undefined])
      await inFolder(async (folder) => {
        await writeContents(folder, contentsOf(tensors, config));
        const { findings, weights } = await reportOf(folder);
        expect(errorsIn(findings)).toEqual([]);
        expect(weights.map((weight) => [weight.convention, weight.shape])).toEqual([[name, [4, 64]]]);
      });
  });

  it("without weight_shape and a configuration nobody knows how many bits a code has", async () => {
    const tensors = new Map<string, StoredTensor>();
    addWeight(tensors, MODULE, { name: "ct-int8-packed", kind: "row" }, [4, 64], drawsFrom(1));
    tensors.delete(`${MODULE}.weight_shape`);
    await inFolder(async (folder) => {
      await writeContents(folder, contentsOf(tensors, undefined));
      expect((await reportOf(folder)).findings.map(({ name }) => name)).toContain("codes-shape");
    });
  });
});

/** For each packing, the numbers of bits, the multiple of columns, and the bytes of the codes [rows, columns]. */
const PACKINGS: Readonly<
  Record<
    PackingName,
    readonly [
      bits: readonly number[],
      columns: (bits: number) => number,
      pack: (codes: readonly (readonly number[])[], bits: number) => readonly number[],
    ]
  >
> = {
  bytes: [
    [4, 6, 8],
    (bits) => ({ 4: 2, 6: 4 })[bits] ?? 1,
    (codes, bits) => codes.flatMap((row) => stream(row, bits, 8)),
  ],
  words: [[1, 2, 3, 4, 5, 6, 7, 8], () => 1, (codes, bits) => codes.flatMap((row) => stream(row, bits, 32))],
  rows: [
    [4],
    () => 1,
    (codes) =>
      codes.flatMap((row, i) =>
        // two's complement: the sign is inverted
        i % 2 === 1
          ? []
          : row.map((low, column) => (low ^ 8) + 16 * ((codes[i + 1]?.[column] as number) ^ 8)),
      ),
  ],
  "high-first": [
    [4],
    () => 2,
    (codes) =>
      codes.flatMap((row) =>
        row.flatMap((code, i) => (i % 2 === 1 ? [] : [16 * code + (row[i + 1] as number)])),
      ),
  ],
};

/** The bytes of a row as a stream of bits from the low bits up, padded to a multiple of `unit` bits. */
function stream(row: readonly number[], bits: number, unit: number): number[] {
  const digits = row.flatMap((code) => Array.from({ length: bits }, (_, i) => (code >> i) & 1));
  while (digits.length % unit !== 0) digits.push(0);
  return Array.from({ length: digits.length / 8 }, (_, byte) =>
    digits.slice(8 * byte, 8 * byte + 8).reduce((sum, digit, i) => sum + digit * 2 ** i, 0),
  );
}

describe("unpacked codes", () => {
  const packedCases = fc.constantFrom(...(Object.keys(PACKINGS) as PackingName[])).chain((packing) => {
    const [bitsOf, multipleOf] = PACKINGS[packing];
    return fc.record({
      packing: fc.constant(packing),
      bits: fc.constantFrom(...bitsOf),
      matrices: fc.integer({ min: 1, max: 3 }),
      rows: fc.integer({ min: 1, max: 4 }).map((count) => (packing === "rows" ? 2 * count : count)),
      units: fc.integer({ min: 1, max: 9 }),
      width: fc.constantFrom<1 | 2>(1, 2),
      ends: fc.tuple(share, share),
      seed: fc.nat(),
      multipleOf: fc.constant(multipleOf),
    });
  });

  it("have the codes and positions of the whole, wherever a read begins and ends, in every packing", async () => {
    await fc.assert(
      fc.asyncProperty(packedCases, async ({ packing, bits, matrices, rows, width, ends, ...drawn }) => {
        const columns = drawn.units * drawn.multipleOf(bits);
        const draw = drawsFrom(1 + drawn.seed);
        const codes = Array.from({ length: matrices * rows }, () =>
          Array.from({ length: columns }, () => Math.floor(draw() * 2 ** bits)),
        );
        const bytes = Uint8Array.from(PACKINGS[packing][2](codes, bits));
        const from = new MemorySource("packed", [{ name: "w", dtype: "U8", shape: [bytes.length], bytes }]);
        const changedCode = (code: number, matrix: number, row: number, column: number): number =>
          (code + 3 * column + 41 * row + 97 * matrix) % 2 ** (8 * width);
        const { entry, shard } = unpackedTensor(
          { entry: from.entry("w"), shard: from },
          { packing, bits, shape: [matrices, rows, columns], width, change: async () => changedCode },
        );
        const expected = codes.flatMap((row, i) =>
          row.map((code, column) => changedCode(code, Math.floor(i / rows), i % rows, column)),
        );
        const [begin, end] = ends
          .map((fraction) => Math.round(fraction * expected.length))
          .sort((a, b) => a - b) as [number, number];
        const bytesRead = await shard.read(entry, begin * width, end * width);
        const values = width === 1 ? bytesRead : new Uint16Array(bytesRead.slice().buffer);
        expect([...values]).toEqual(expected.slice(begin, end));
      }),
      { numRuns: draws(400, 60) },
    );
  });
});
