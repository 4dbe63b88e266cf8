/** A region of a quantized weight equals the region of the whole weight: codes, elements, values and scales. */
import { join } from "node:path";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { openCheckpoint } from "../../../../src/checkpoints/api/open.js";
import type { Checkpoint, StoredWeight } from "../../../../src/checkpoints/checkpoint.js";
import type { MatrixRegion } from "../../../../src/checkpoints/regions/region.js";
import type { WeightRegion } from "../../../../src/checkpoints/regions/weight.js";
import { CODE_TYPES } from "../../../../src/checkpoints/stored/code-types.js";
import { conventionOf } from "../../../../src/checkpoints/stored/conventions.js";
import { asMatrix } from "../../../../src/tensor/shape.js";
import { share } from "../../arbitraries/share.js";
import { derivedSeed, draws } from "../../harness/draws.js";
import { inFolder, type StoredTensor, writeContents } from "../files/checkpoints.js";
import {
  addWeight,
  configFor,
  contentsOf,
  drawsFrom,
  FORMS,
  type Form,
  GROUP,
  type Options,
} from "../files/drawn-files.js";

const MODULE = "model.layers.0.mlp.down_proj";

interface Case {
  readonly form: Form;
  readonly options: Options;
  readonly size: readonly [rows: number, columns: number];
  /** The begin and end of the region, as shares of the rows and columns. */
  readonly ends: readonly [number, number, number, number];
  readonly seed: number;
}

/** Sizes that a form supports: whole groups, or whole bytes and words of codes. The last tile may be partial. */
function sizesOf({ name, kind }: Form): fc.Arbitrary<readonly [rows: number, columns: number]> {
  const { codes, group = GROUP } = conventionOf(name);
  const maxUnits = kind === "tile" ? 20 : 6;
  const rows = fc.integer({ min: 1, max: kind === "tile" ? 150 : 20 });
  return fc
    .tuple(rows, fc.integer({ min: 1, max: maxUnits }))
    .map(([n, m]) => [codes.packing === "rows" ? 2 * n : n, (kind === "group" ? group : 16) * m] as const);
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    form: fc.constantFrom(...FORMS),
    zeros: fc.boolean(),
    order: fc.boolean(),
    factors: fc.boolean(),
  })
  .chain(({ form, ...flags }) => {
    const { zeros, order, factors, type } = conventionOf(form.name);
    const hasPoints = zeros !== undefined && type.startsWith("int") && ["row", "group"].includes(form.kind);
    return fc.record({
      form: fc.constant(form),
      options: fc.constant<Options>({
        zeros: flags.zeros && hasPoints,
        order: flags.order && order !== undefined && form.kind === "group",
        factors: flags.factors && factors !== undefined,
      }),
      size: sizesOf(form),
      ends: fc.tuple(share, share, share, share),
      seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    });
  });

/** A weight with a factor for each column, and a region that does not begin at the first one. */
const FACTORS: Case = {
  form: { name: "modelopt-w4a8-nvfp4", kind: "group" },
  options: { factors: true },
  size: [2, 64],
  ends: [0, 0.5, 0.5, 0.75],
  seed: 1,
};

/** A weight whose name has no suffix, with a scale for each column. */
const EXPERTS: Case = {
  form: { name: "fbgemm-experts", kind: "column" },
  options: {},
  size: [2, 32],
  ends: [0.5, 0.5, 0.25, 0.75],
  seed: 1,
};

/** A weight whose groups are not consecutive columns. */
const ORDERED: Case = {
  form: { name: "ct-int8-packed", kind: "group" },
  options: { order: true },
  size: [1, 64],
  ends: [0, 0, 0.25, 0.75],
  seed: 1,
};

/** As above, with two codes in a byte. */
const ORDERED_FOUR_BITS: Case = { ...ORDERED, form: { name: "ct-mxfp4", kind: "group" } };

/** Weights of every packing of codes, and regions that begin and end within a line of packed codes. */
const PACKED: readonly Case[] = FORMS.filter(
  ({ name }, i) =>
    FORMS.findIndex(
      (otherForm) => conventionOf(otherForm.name).codes.packing === conventionOf(name).codes.packing,
    ) === i,
).map((form) => ({ form, options: {}, size: [8, 128], ends: [0.4, 0.65, 0.3, 0.7], seed: 1 }));

/** The region between two shares of the rows and two of the columns. */
function regionOf({ ends }: Case, [rows, columns]: readonly [number, number]): MatrixRegion {
  const [rowShares, columnShares] = [ends.slice(0, 2), ends.slice(2)];
  const [top, bottom] = rowShares
    .map((fraction) => Math.min(Math.floor(fraction * rows), rows - 1))
    .sort((x, y) => x - y) as [number, number];
  const [left, right] = columnShares
    .map((fraction) => Math.min(Math.floor(fraction * columns), columns - 1))
    .sort((x, y) => x - y) as [number, number];
  return { row: top, rows: bottom - top + 1, column: left, columns: right - left + 1 };
}

/** The elements of a region of a matrix with `width` columns, in memory order. */
function elementsIn(
  values: ArrayLike<number>,
  width: number,
  { row, column, rows, columns }: MatrixRegion,
): number[] {
  return Array.from({ length: rows * columns }, (_, i) => {
    return values[(row + Math.floor(i / columns)) * width + column + (i % columns)] as number;
  });
}

/** The part of the scales of the whole weight that a region overlaps. */
function scalesIn(
  { scales }: WeightRegion,
  [height, width]: readonly [number, number],
  region: MatrixRegion,
) {
  const [top, left] = [Math.floor(region.row / height), Math.floor(region.column / width)];
  const lines = Math.floor((region.row + region.rows - 1) / height) - top + 1;
  const blocks = Math.floor((region.column + region.columns - 1) / width) - left + 1;
  const scaleRegion = { row: top, column: left, rows: lines, columns: blocks };
  const [codes, values] = [scales.codes, scales.values].map((scaleValues) =>
    elementsIn(scaleValues, scales.blocks, scaleRegion),
  );
  return { format: scales.format, global: scales.global, lines, blocks, codes, values };
}

/** The elements that share a scale. If an order of columns splits the groups, each column has its own scale. */
function blockOf(
  { scales, columns }: WeightRegion,
  [height, width]: readonly [number, number],
): readonly [number, number] {
  return [height, scales.blocks === columns ? 1 : width];
}

async function valuesOf(checkpoint: Checkpoint, name: string): Promise<number[]> {
  const values: number[] = [];
  for await (const part of checkpoint.rows(name)) values.push(...Array.from(part.values, Math.fround));
  return values;
}

it("has the codes, elements, values and scales of that region of the whole weight", async () => {
  await fc.assert(
    fc.asyncProperty(cases, async (testCase) => {
      const { form, options, size, seed } = testCase;
      const tensors = new Map<string, StoredTensor>();
      const expectedWeight = addWeight(tensors, MODULE, form, size, drawsFrom(seed), options);
      await inFolder(async (folder) => {
        await writeContents(folder, contentsOf(tensors, configFor(form, options)));
        const checkpoint = await openCheckpoint(join(folder, "model.safetensors"), { as: form.name });
        const [[name, { shape, block }]] = [...checkpoint.weights] as [[string, StoredWeight]];
        const [rows, columns] = asMatrix(shape);
        const region = regionOf(testCase, [rows, columns]);
        const wholeRegion = await checkpoint.readWeight(name, { row: 0, column: 0, rows, columns });
        const part = await checkpoint.readWeight(name, region);
        const values = await valuesOf(checkpoint, name);
        await checkpoint.close();
        expect(Array.from(wholeRegion.values)).toEqual(values);
        const { values: valuesOfCodes } = CODE_TYPES[conventionOf(form.name).type];
        if (!expectedWeight.points)
          expect(Array.from(wholeRegion.elements)).toEqual(
            expectedWeight.codes.map((code) => valuesOfCodes[code]),
          );
        expect(part).toMatchObject(region);
        for (const name of ["codes", "elements", "values"] as const)
          expect(Array.from(part[name]), name).toEqual(elementsIn(wholeRegion[name], columns, region));
        const { codes, values: scales, ...otherFields } = part.scales;
        expect({ global: undefined, ...otherFields, codes: [...codes], values: [...scales] }).toEqual(
          scalesIn(wholeRegion, blockOf(wholeRegion, block), region),
        );
      });
    }),
    {
      numRuns: draws(200, 17),
      seed: derivedSeed(351),
      examples: [FACTORS, EXPERTS, ORDERED, ORDERED_FOUR_BITS, ...PACKED].map((example) => [example]),
    },
  );
});
