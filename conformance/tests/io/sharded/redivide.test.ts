/** Quantized parameters of a sharded checkpoint, loaded by ranks with a different division of rows. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { FileError } from "../../../../src/errors.js";
import { loadShardedCheckpoint, saveShardedCheckpoint } from "../../../../src/io/index.js";
import { Linear } from "../../../../src/modules/linear.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { fullyShard } from "../../../../src/parallel/fsdp/fully-shard.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { membersOf } from "../../../../src/tape/value.js";
import { draws, sampleCases } from "../../harness/draws.js";
import { useBackends } from "../../harness/ranks/backends.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST, type RecipeName } from "../../harness/training/run.js";
import { useFolder } from "../folder.js";

const MOST = 4;
const backends = useBackends(MOST);
const groupsOf = (size: number): ProcessGroup[] => loopbackOver(backends.slice(0, size), 20_000);
const QUANTIZED = RECIPE_NAMES.filter((name) => name !== "bf16");

let folder = "";
useFolder((createdFolder) => {
  folder = createdFolder;
});

/** The division of a weight's rows: first among layers that share them in pieces, then by `fullyShard`. */
interface Division {
  readonly tp: number;
  readonly dp: number;
  readonly rowMultiple: number;
  /** The number of copies that `fullyShard` makes of each part, along dp. Default 1. */
  readonly replicate?: number;
}

interface Layer {
  readonly rows: number;
  readonly columns: number;
  readonly pieces: number;
  readonly recipe: RecipeName;
}

/** A layer whose weight is quantized, with one rank's rows. */
function layersOf(
  { rows, columns, pieces, recipe }: Layer,
  { tp, dp, rowMultiple, replicate = 1 }: Division,
  seed: bigint,
) {
  return groupsOf(tp * dp).map((group) => {
    const mesh = group.split({ dp, tp });
    const parallel = tp > 1 ? ({ group: mesh.tp, parallelMode: "column", pieces } as const) : {};
    const recipeUnderTest = RECIPES_UNDER_TEST[recipe]?.();
    const module = quantizedModelInit({ ...(recipeUnderTest ? { recipe: recipeUnderTest } : {}) }, () => {
      const options = { bias: false, random: new RandomState(seed), ...parallel };
      return new Linear(group.backend, columns, rows, options);
    });
    if (dp > 1) fullyShard(module, mesh.dp, { rowMultiple, mesh: { replicate, shard: dp / replicate } });
    return { module, group };
  });
}

const bitsOf = ({ module }: { readonly module: Linear }): Promise<readonly string[]> =>
  Promise.all(membersOf(module.weight.value).map(async (member) => String(await member.data())));

/** Saves a layer under one division, and loads it into a layer with other values under another division. */
async function roundTrip(layer: Layer, divisionBefore: Division, divisionAfter: Division): Promise<void> {
  const savedLayers = layersOf(layer, divisionBefore, 1n);
  await Promise.all(savedLayers.map((state) => saveShardedCheckpoint(folder, state)));
  const [loadedLayers, expectedLayers] = [
    layersOf(layer, divisionAfter, 2n),
    layersOf(layer, divisionAfter, 1n),
  ];
  await Promise.all(loadedLayers.map((state) => loadShardedCheckpoint(folder, state)));
  for (const [i, loadedLayer] of loadedLayers.entries())
    expect(await bitsOf(loadedLayer)).toEqual(await bitsOf(expectedLayers[i] as (typeof expectedLayers)[0]));
  for (const { module } of [...savedLayers, ...loadedLayers, ...expectedLayers]) module.dispose();
}

const division = fc.constantFrom<Division>(
  { tp: 1, dp: 1, rowMultiple: 1 },
  { tp: 1, dp: 2, rowMultiple: 128 },
  { tp: 1, dp: 3, rowMultiple: 128 },
  { tp: 1, dp: 4, rowMultiple: 1 },
  { tp: 2, dp: 1, rowMultiple: 1 },
  { tp: 4, dp: 1, rowMultiple: 1 },
  { tp: 2, dp: 2, rowMultiple: 128 },
  { tp: 1, dp: 4, rowMultiple: 128, replicate: 2 },
  { tp: 2, dp: 2, rowMultiple: 128, replicate: 2 },
);

/** Two ranks save a weight of two pieces; one rank loads it. Each piece has rows of both ranks, so the saved parts alternate. */
const GATED = {
  divisionBefore: { tp: 2, dp: 1, rowMultiple: 1 },
  divisionAfter: { tp: 1, dp: 1, rowMultiple: 1 },
  ...{ rows: 1024, columns: 128, pieces: 2 },
};

describe("quantized parameters", () => {
  it.each(sampleCases(QUANTIZED))(
    "%s: have the codes and scales of the whole, however their rows are divided",
    async (recipe) => {
      const cases = fc.record({
        divisionBefore: division,
        divisionAfter: division,
        rows: fc.constantFrom(1024, 2048),
        columns: fc.constantFrom(128, 160),
        pieces: fc.constantFrom(1, 2),
      });
      await fc.assert(
        fc.asyncProperty(cases, async ({ divisionBefore, divisionAfter, ...sizes }) => {
          await roundTrip({ ...sizes, recipe }, divisionBefore, divisionAfter);
        }),
        { numRuns: draws(8, 1), examples: [[GATED]] },
      );
    },
  );

  it.each(sampleCases(QUANTIZED, 2, 1))(
    "%s: go to a rank that has no rows, and come back from one",
    async (recipe) => {
      const layer = { rows: 128, columns: 128, pieces: 1, recipe };
      const divisions = [1, 2, 4].map((dp) => ({ tp: 1, dp, rowMultiple: 128 }));
      const pairs = divisions.flatMap((divisionBefore) =>
        divisions.map((divisionAfter) => [divisionBefore, divisionAfter] as const),
      );
      for (const [divisionBefore, divisionAfter] of sampleCases(pairs, 3))
        await roundTrip(layer, divisionBefore, divisionAfter);
    },
  );

  it.each([
    // each rank has 32 of 128 rows, or 16 of 64: less than one block
    ["block", 128, { tp: 4, dp: 1, rowMultiple: 1 }, /within a block of 128 rows have other blocks/],
    ["mxfp8", 64, { tp: 4, dp: 1, rowMultiple: 1 }, /within a block of 32 rows have other blocks/],
  ] as const)(
    "%s: are refused if a part cuts a block, and nothing has changed",
    async (recipe, rows, savedDivision, message) => {
      const layer = { rows, columns: 128, pieces: 1, recipe };
      const savedLayers = layersOf(layer, savedDivision, 1n);
      await Promise.all(savedLayers.map((state) => saveShardedCheckpoint(folder, state)));
      const [singleLayer] = layersOf(layer, { tp: 1, dp: 1, rowMultiple: 1 }, 2n) as [
        (typeof savedLayers)[0],
      ];
      const bitsBefore = await bitsOf(singleLayer);
      const pendingLoad = loadShardedCheckpoint(folder, singleLayer);
      await expect(pendingLoad).rejects.toThrow(FileError);
      await expect(pendingLoad).rejects.toThrow(message);
      expect(await bitsOf(singleLayer)).toEqual(bitsBefore);
      for (const { module } of [...savedLayers, singleLayer]) module.dispose();
    },
  );

  it("are refused if ranks had other scales", async () => {
    const layer = { rows: 64, columns: 64, pieces: 1, recipe: "current" } as const;
    const savedLayers = layersOf(layer, { tp: 2, dp: 1, rowMultiple: 1 }, 1n);
    const [{ module }] = savedLayers as [(typeof savedLayers)[0]];
    const [, scale] = membersOf(module.weight.value);
    scale?.write(new Float32Array([3]));
    await Promise.all(savedLayers.map((state) => saveShardedCheckpoint(folder, state)));
    const [singleLayer] = layersOf(layer, { tp: 1, dp: 1, rowMultiple: 1 }, 2n) as [(typeof savedLayers)[0]];
    await expect(loadShardedCheckpoint(folder, singleLayer)).rejects.toThrow(
      /is not the same in the parts that ranks had/,
    );
    for (const layerToFree of [...savedLayers, singleLayer]) layerToFree.module.dispose();
  });
});
