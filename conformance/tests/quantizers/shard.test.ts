/**
 * The parts of a tensor on several ranks are quantized like the full tensor: their codes and scales are slices of the full
 * tensor's, and gathering them gives the full tensor.
 */
import fc from "fast-check";
import { expect, it } from "vitest";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { gatherQuantized } from "../../../src/collectives/quantized.js";
import { BLOCK_FORMATS, isDirectionless, isLineWide, tileSize } from "../../../src/formats/block.js";
import { wideTensor } from "../../../src/modules/parameter.js";
import { quantizerNamed } from "../../../src/quantizers/named.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import type { Shard } from "../../../src/quantizers/shard.js";
import { normal } from "../../../src/random.js";
import {
  DIRECTIONS,
  type QuantizedTensor,
  type QuantizeSpec,
  type Usage,
} from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { quantizeSpec, scaleLayout, usage } from "../../arbitraries/specs.js";
import { rankIndices } from "../../oracle/training/divided.js";
import { cast, type Matrix } from "../../oracle/training/matrix.js";
import { differenceOf } from "../../values/difference.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { draws } from "../harness/draws.js";
import { partOf, readPlain, useRanks } from "../modules/tensor-parallel/ranks.js";

const MOST = 8;
const groups = useRanks(MOST, "exact");

interface Drawn {
  readonly spec: QuantizeSpec;
  readonly ranks: number;
  readonly dimension: Shard["dimension"];
  readonly pieces: 1 | 2;
  readonly rows: number;
  readonly columns: number;
  readonly usage: Usage;
  readonly scaleLayout: "logical" | "padded" | "swizzled";
  readonly outlier: number | undefined;
  readonly seed: bigint;
  readonly offset: bigint;
}

/** Specs of quantizers that compute their scales and whose blocks are not lines. */
const specs = quantizeSpec().filter(
  ({ quantizer, tile, rowScaled }) => quantizer !== "fp8-delayed" && !isLineWide(tile) && !rowScaled,
);

/** Parts that consist of complete blocks. */
const drawnOf = (choices: fc.Arbitrary<QuantizeSpec>): fc.Arbitrary<Drawn> =>
  choices.chain((spec) =>
    fc
      .record({
        spec: fc.constant(spec),
        ranks: fc.integer({ min: 2, max: tileSize(spec.tile)[1] === 128 ? 2 : MOST }),
        dimension: fc.constantFrom<Shard["dimension"]>("rows", "columns"),
        pieces: fc.constantFrom<1 | 2>(1, 2),
        along: fc.integer({ min: 1, max: 2 }),
        across: fc.integer({ min: 1, max: 2 }),
        /** A number of rows that is not divided: any number, or complete blocks. */
        anyRows: fc.option(fc.integer({ min: 1, max: 20 }), { nil: undefined, freq: 2 }),
        usage: usage(),
        scaleLayout: scaleLayout(spec),
        outlier: fc.option(fc.nat(MOST - 1), { nil: undefined }),
        seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
        offset: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
      })
      .map(({ along: unitsAlong, across: unitsAcross, anyRows, ...rest }) => {
        const unit = Math.max(16, tileSize(spec.tile)[1], BLOCK_FORMATS[spec.quantizer].multiple);
        const pieces = rest.dimension === "columns" ? rest.pieces : 1;
        const isLarge = unit * rest.ranks > 64;
        const [dividedSize, otherSize] = [
          unit * rest.ranks * pieces * (isLarge ? 1 : unitsAlong),
          unit * (isLarge ? 1 : unitsAcross),
        ];
        const [rows, columns] =
          rest.dimension === "rows" ? [dividedSize, otherSize] : [anyRows ?? otherSize, dividedSize];
        return { ...rest, pieces, rows, columns };
      }),
  );

/** Random values, and a value of 1e4 on one rank. */
function valuesOf({ spec, rows, columns, seed, outlier, ranks, dimension, pieces }: Drawn): Matrix {
  const data = normal({ seed, offset: 1n }, rows * columns, 1);
  if (outlier !== undefined) {
    const positions = rankIndices(
      { ranks, pieces, mode: "column", sequence: false },
      outlier % ranks,
      dimension === "rows" ? rows : columns,
    );
    const position = positions[3] as number;
    data[dimension === "rows" ? position * columns + 5 : (5 % rows) * columns + position] = 1e4;
  }
  return cast({ data, shape: [rows, columns], dtype: "f32" }, spec.rht ? "bf16" : "f32");
}

/** Creates the quantizer of a rank's part. */
function quantizerOf(
  { spec, usage: copies, scaleLayout: layout, seed, offset }: Drawn,
  shard: Shard | undefined,
): Quantizer {
  const { quantizer, compact, rhtSigns: _, ...settings } = spec;
  const { options } = BLOCK_FORMATS[quantizer] as { readonly options: readonly string[] };
  const ownTensors = Object.fromEntries(
    Object.entries(settings).filter(([name]) => name === "format" || options.includes(name)),
  );
  return quantizerNamed(quantizer, {
    ...ownTensors,
    ...{ ...copies, scaleLayout: layout, gathered: compact, shard },
    ...(options.includes("stochastic") ? { random: new RandomState(seed, offset) } : {}),
  });
}

type Read = ReadonlyMap<string, PlainTensor>;

/** Returns the codes and scales of all copies of the whole tensor, with their geometries. */
function wholeOf({ backend }: ProcessGroup, matrix: Matrix, plan: Drawn): () => Promise<Read> {
  using scope = new Scope();
  const x = wideTensor(backend, matrix.data, matrix.shape, matrix.dtype);
  return reader(scope, [
    ["own", quantizerOf(plan, undefined).quantize(x)],
    ["whole", quantizerOf({ ...plan, spec: { ...plan.spec, compact: false } }, undefined).quantize(x)],
  ]);
}

function start(group: ProcessGroup, matrix: Matrix, plan: Drawn): () => Promise<Read> {
  using scope = new Scope();
  const { dimension, pieces, ranks } = plan;
  const ownMatrix = partOf(matrix, dimension, { ranks, pieces, mode: "column", sequence: false }, group.rank);
  const x = wideTensor(group.backend, ownMatrix.data, ownMatrix.shape, ownMatrix.dtype);
  const quantizer = quantizerOf(plan, { group, dimension, pieces });
  const derives = isDirectionless(plan.spec);
  const quantizedTensor = quantizer.setUsage(derives ? { rowwise: true } : {}).quantize(x);
  const sentTensor =
    dimension === "rows" && pieces === 1
      ? gatherQuantized(group, quantizedTensor, plan.usage, quantizer)
      : undefined;
  return reader(scope, [["own", quantizedTensor], ...(sentTensor ? [["whole", sentTensor] as const] : [])]);
}

/** Reads the tensors of quantized tensors after all ranks have contributed to them. */
function reader(
  scope: Scope,
  tensors: readonly (readonly [name: string, t: QuantizedTensor])[],
): () => Promise<Read> {
  const keptTensors = new Map<string, Tensor>();
  for (const [name, t] of tensors) {
    for (const direction of DIRECTIONS) {
      const copy = t[direction];
      for (const field of ["data", "scaleInv", "amax"] as const) {
        const tensor = copy?.[field];
        if (tensor) keptTensors.set(`${name} ${direction} ${field}`, scope.keep(tensor.clone()));
      }
    }
  }
  return async () => {
    const results = new Map<string, PlainTensor>();
    for (const [name, tensor] of keptTensors) {
      results.set(name, await readPlain(tensor));
      tensor.dispose();
    }
    return results;
  };
}

/** Returns a rank's slice of the codes or scales of the full tensor, which may be stored transposed. */
function slice(x: PlainTensor, plan: Drawn, rank: number, isTransposed: boolean): PlainTensor {
  const [rows, columns] = x.shape as [number, number];
  const { codes } = x;
  const { dimension, ranks, pieces } = plan;
  const cuts = (dimension === "rows") !== isTransposed ? 0 : 1;
  const division = { ranks, pieces, mode: "column", sequence: false } as const;
  const indicesUpTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
  const rowIndices = cuts === 0 ? rankIndices(division, rank, rows) : indicesUpTo(rows);
  const columnIndices = cuts === 1 ? rankIndices(division, rank, columns) : indicesUpTo(columns);
  return fromCodes(
    x.dtype,
    [rowIndices.length, columnIndices.length],
    rowIndices.flatMap((i) => columnIndices.map((j) => codes[i * columns + j] as number)),
  );
}

/** Fails unless the codes and scales of every rank's part are slices of the codes and scales of the full tensor. */
async function requireSlices(plan: Drawn): Promise<void> {
  const values = valuesOf(plan);
  const members = groups(plan.ranks);
  const fullResults = await wholeOf(members[0] as ProcessGroup, values, plan)();
  const results = await Promise.all(
    members.map((group) => start(group, values, plan)).map((finish) => finish()),
  );
  const description = (rank: number, name: string): string =>
    `rank ${rank}, ${name} of ${JSON.stringify(plan, (_, value) => (typeof value === "bigint" ? `${value}n` : value))}`;
  for (const [rank, tensors] of results.entries()) {
    for (const [name, actual] of tensors) {
      const expectedTensor = fullResults.get(name);
      // this copy is derived from the other one
      if (!expectedTensor) continue;
      const [usage, direction, field] = name.split(" ") as [string, (typeof DIRECTIONS)[number], string];
      const isOne = field === "amax" || expectedTensor.shape.length === 1;
      const laidOut = field === "scaleInv" && plan.scaleLayout !== "logical" && !plan.spec.compact;
      if (usage === "own" && laidOut && !isOne) continue;
      const { columnwise } = BLOCK_FORMATS[plan.spec.quantizer];
      const divisionMode = plan.spec.compact ? "inPlace" : columnwise[field === "data" ? "data" : "scale"];
      const expected =
        usage === "whole" || isOne
          ? expectedTensor
          : slice(expectedTensor, plan, rank, direction === "columnwise" && divisionMode === "transposed");
      expect(differenceOf(actual, expected), description(rank, name)).toBeUndefined();
    }
  }
}

it("shards equal slices of the full result for any quantizer, dimension and number of ranks, with an amax of 1e4 on any one rank", async () => {
  await fc.assert(fc.asyncProperty(drawnOf(specs), requireSlices), {
    numRuns: draws(60),
    endOnFailure: true,
  });
});

it("shards of columns in pieces take the random bits of their columns, on more ranks than pieces", async () => {
  const stochastic = drawnOf(specs.filter((spec) => spec.stochastic)).filter(
    ({ dimension, pieces, ranks }) => dimension === "columns" && ranks > pieces && pieces > 1,
  );
  await fc.assert(fc.asyncProperty(stochastic, requireSlices), { numRuns: draws(30), endOnFailure: true });
});
