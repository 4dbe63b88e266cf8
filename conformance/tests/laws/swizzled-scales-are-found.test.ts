/**
 * Swizzled block scales, which the file does not declare, are found by the statistics of the weight, whatever the magnitudes of
 * rows and columns. Scales in row-major order are never reported as swizzled.
 */
import { join } from "node:path";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { swizzledIndex } from "../../../src/tensor/places.js";
import {
  type Contents,
  convertTo,
  inFolder,
  readContents,
  reportOfContents,
  type StoredTensor,
  writeContents,
} from "../checkpoints/files/checkpoints.js";
import { drawsFrom } from "../checkpoints/files/drawn-files.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1 });
const WEIGHT = "model.layers.0.mlp.down_proj.weight";
const TARGETS = ["modelopt-nvfp4", "ct-mxfp4", "ct-mxfp8"] as const;

/** A weight: its size in tiles of 128 rows and 4 groups, and how magnitudes of rows, columns and elements spread (log-normal). */
interface Drawn {
  readonly target: (typeof TARGETS)[number];
  readonly tiles: readonly [number, number];
  readonly exponentSpread: { readonly rows: number; readonly columns: number; readonly elements: number };
  readonly seed: number;
}

/** A weight in BF16, as the quantized weight of a target. */
async function quantizedContents({ target, tiles, exponentSpread, seed }: Drawn): Promise<Contents> {
  const draw = drawsFrom(seed);
  const normal = (): number => Math.sqrt(-2 * Math.log(1 - draw())) * Math.cos(2 * Math.PI * draw());
  const group = target === "modelopt-nvfp4" ? 16 : 32;
  const [rows, columns] = [128 * tiles[0], 4 * group * tiles[1]];
  const factors = (count: number, sigma: number): number[] =>
    Array.from({ length: count }, () => Math.exp(sigma * normal()));
  const [ofRows, ofColumns] = [factors(rows, exponentSpread.rows), factors(columns, exponentSpread.columns)];
  const values = Float32Array.from({ length: rows * columns }, (_, i) => {
    const [row, column] = [ofRows[Math.floor(i / columns)] as number, ofColumns[i % columns] as number];
    return 0.02 * row * column * normal() * Math.exp(exponentSpread.elements * normal());
  });
  const halves = Uint16Array.from(new Uint32Array(values.buffer), (word) => word >>> 16);
  const held: StoredTensor = { dtype: "BF16", shape: [rows, columns], bytes: new Uint8Array(halves.buffer) };
  return inFolder(async (folder) => {
    await writeContents(folder, { tensors: new Map([[WEIGHT, held]]), metadata: {}, json: new Map() });
    const out = join(folder, "out");
    await convertTo(backend(), folder, out, target);
    return readContents(out);
  });
}

/** Swizzles the scales. */
function swizzle({ tensors }: Contents): void {
  const held = tensors.get(`${WEIGHT}_scale`) as StoredTensor;
  const [, columns] = held.shape as readonly [number, number];
  const bytes = new Uint8Array(held.bytes.length);
  for (const [i, byte] of held.bytes.entries())
    bytes[swizzledIndex(Math.floor(i / columns), i % columns, columns)] = byte;
  held.bytes = bytes;
}

const isSaid = async (contents: Contents): Promise<boolean> =>
  (await reportOfContents(contents)).findings.some(({ name }) => name === "scales-swizzled");

const sigma = (max: number): fc.Arbitrary<number> => fc.double({ min: 0, max, noNaN: true });

it("as stored they are never said to be swizzled, and swizzled they are found", async () => {
  const drawnCases: fc.Arbitrary<Drawn> = fc.record({
    target: fc.constantFrom(...TARGETS),
    tiles: fc.tuple(fc.integer({ min: 1, max: 2 }), fc.integer({ min: 1, max: 3 })),
    exponentSpread: fc.record({ rows: sigma(2), columns: sigma(0.5), elements: sigma(0.8) }),
    seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
  });
  const rowSpread: Drawn = {
    target: "modelopt-nvfp4",
    tiles: [1, 1],
    exponentSpread: { rows: 1, columns: 0, elements: 0 },
    seed: 1,
  };
  await fc.assert(
    fc.asyncProperty(drawnCases, async (drawnCase) => {
      const contents = await quantizedContents(drawnCase);
      expect(await isSaid(contents)).toBe(false);
      swizzle(contents);
      expect(await isSaid(contents)).toBe(true);
    }),
    { numRuns: draws(80), examples: [[rowSpread]] },
  );
});

it("scales of weights whose rows and columns are all there is in them are not said to be swizzled", async () => {
  // signs times the product of a row factor and a column factor: blocks of a row differ by column factors only
  for (const exponentSpread of [
    { rows: 2, columns: 2, elements: 0 },
    { rows: 3, columns: 0, elements: 3 },
    { rows: 0, columns: 3, elements: 2 },
  ])
    for (const target of TARGETS)
      expect(await isSaid(await quantizedContents({ target, tiles: [1, 2], exponentSpread, seed: 5 }))).toBe(
        false,
      );
});
