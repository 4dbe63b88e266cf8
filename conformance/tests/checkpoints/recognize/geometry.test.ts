/** A weight with a partial last block is reported for each dimension that has one, under every convention with blocks. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { type ConventionName, conventionOf } from "../../../../src/checkpoints/stored/conventions.js";
import { draws } from "../../harness/draws.js";
import { reportOfContents, type StoredTensor } from "../files/checkpoints.js";
import { addWeight, configFor, contentsOf, drawsFrom, FORMS } from "../files/drawn-files.js";

type Pair = readonly [rows: number, columns: number];

interface Drawn {
  readonly name: ConventionName;
  readonly block: Pair;
  /** The sizes of each weight. */
  readonly shapes: readonly Pair[];
}

/** Conventions whose files have scales of blocks. The configuration of the first convention states the block. */
const TILED = FORMS.filter(({ kind }) => kind === "tile").map(({ name }) => name);
const CONFIGURED = "block-fp8";

const moduleOf = (layer: number): string => `model.layers.${layer}.mlp.up_proj`;

/** Sizes of less than a block, of whole blocks, and of whole blocks and a part, whose number of blocks may divide them. */
const sizeBy = (block: number): fc.Arbitrary<number> =>
  fc.oneof(
    fc.integer({ min: 1, max: 2 * block + 8 }),
    fc
      .tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: -2, max: 2 }))
      .map(([n, remainder]) => n * block + remainder),
    fc.constantFrom(block / 2, block + block / 2),
  );

const cases: fc.Arbitrary<Drawn> = fc.constantFrom(...TILED).chain((name) => {
  const blocks: readonly Pair[] =
    name === CONFIGURED
      ? [
          [128, 128],
          [64, 32],
          [32, 64],
        ]
      : [[128, 128]];
  return fc.constantFrom(...blocks).chain((block) =>
    fc.record({
      name: fc.constant(name),
      block: fc.constant(block),
      shapes: fc.array(fc.tuple(sizeBy(block[0]), sizeBy(block[1])), { minLength: 1, maxLength: 3 }),
    }),
  );
});

const EXAMPLES: readonly Drawn[] = [
  // a block is larger than the first weight in one dimension, and than the second weight in both dimensions
  {
    name: CONFIGURED,
    block: [128, 128],
    shapes: [
      [64, 256],
      [3, 5],
    ],
  },
  // in each dimension, a part of a block that is a whole one of the other dimension
  {
    name: CONFIGURED,
    block: [64, 32],
    shapes: [
      [96, 32],
      [64, 64],
      [64, 48],
    ],
  },
];

it("a partial last block of several is reported, with the block that transformers derives if it differs", async () => {
  await fc.assert(
    fc.asyncProperty(cases, async ({ name, block, shapes }) => {
      const tensors = new Map<string, StoredTensor>();
      const form = { name, kind: "tile" } as const;
      const config = name === CONFIGURED ? { quant_method: "fp8", weight_block_size: block } : undefined;
      for (const [i, shape] of shapes.entries()) {
        addWeight(tensors, moduleOf(i), form, shape, drawsFrom(i + 1));
        const scale = tensors.get(moduleOf(i) + conventionOf(name).scale.suffix) as StoredTensor;
        if (!config) continue;
        const grid = shape.map((size, axis) => Math.ceil(size / (block[axis] as number)));
        const values = new Float32Array((grid[0] as number) * (grid[1] as number)).fill(0.01);
        Object.assign(scale, { dtype: "F32", shape: grid, bytes: new Uint8Array(values.buffer) });
      }
      const contents = contentsOf(tensors, config ? { quantization_config: config } : configFor(form));
      const { findings } = await reportOfContents(contents);
      const blockFindings = findings.filter((finding) => finding.name.startsWith("block-"));
      const expected = shapes.flatMap((shape, i) =>
        shape.flatMap((size, axis) => {
          const length = block[axis] as number;
          const blocks = Math.ceil(size / length);
          if (size < length || size % length === 0) return [];
          const isDerived = name === CONFIGURED && size % blocks === 0;
          return [[moduleOf(i), isDerived ? "block-derived" : "block-ragged"]];
        }),
      );
      expect(
        blockFindings.map(({ subject, name: finding }) => [subject.slice(0, moduleOf(0).length), finding]),
      ).toEqual(expected);
    }),
    { numRuns: draws(100, 16), examples: EXAMPLES.map((example) => [example]) },
  );
});
