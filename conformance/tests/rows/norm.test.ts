import { beforeAll, describe, expect, test } from "vitest";
import { chunkedSum, laneSum, type Normalization, norm, normBackward } from "../../oracle/rows/norm.js";
import { anyF32, evenF32, SPECIALS, WIDE_TYPES } from "../../values/samples.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, useBackend } from "../harness/suite.js";

const SCRATCH = 1 << 14;
const SHAPES = [
  [1, 1],
  [2, 0],
  [3, 31],
  [2, 33],
  [70, 40],
  [3, 512],
  [2, 1537],
] as const;

let stems: Stems;
beforeAll(async () => {
  stems = await openStems();
});

function matrix(values: readonly number[], rows: number, columns: number): number[][] {
  return Array.from({ length: rows }, (_, row) => values.slice(row * columns, (row + 1) * columns));
}

function newMemory(): number {
  stems.reset();
  return stems.allocate(SCRATCH);
}

/** Divides [0, count) into two parts, to show that the division does not matter. */
function rangesOf(count: number): readonly (readonly [number, number])[] {
  const cutIndex = Math.floor(count / 3);
  return [
    [cutIndex, count],
    [0, cutIndex],
  ];
}

describe("sums", () => {
  test("a row is summed by 32 lanes and their tree, a column by chunks of 32 rows", () => {
    for (const [rows, columns] of SHAPES) {
      for (const { type, round } of WIDE_TYPES) {
        const scratch = newMemory();
        const x = evenF32(rows * columns, 100, rows + columns).map(round);
        const src = stems.putWide(type, x);
        const [byRow, byColumn] = [stems.allocate(4 * rows), stems.allocate(4 * columns)];
        for (const [begin, end] of rangesOf(rows))
          stems.run("rowSum", { src, srcType: type, dst: byRow, columns }, { scratch, begin, end });
        for (const [begin, end] of rangesOf(columns)) {
          const sum = { src, srcType: type, dst: byColumn, dstType: type, rows, columns };
          stems.run("columnSum", sum, { scratch, begin, end });
        }
        const xMatrix = matrix(x, rows, columns);
        const columnsOf = Array.from({ length: columns }, (_, j) =>
          round(chunkedSum(xMatrix.map((row) => row[j]!))),
        );
        expect(stems.getWide(0, byRow, rows)).toEqual(xMatrix.map(laneSum));
        expect(stems.getWide(type, byColumn, columns)).toEqual(columnsOf);
      }
    }
  });

  test("infinities, NaN, -0 and overflow follow the same order", () => {
    for (const tail of [[], SPECIALS, [3e38, 3e38, -3e38], [-0], anyF32(100)]) {
      const x = [...evenF32(64, 3e38), ...tail];
      const scratch = newMemory();
      const out = stems.allocate(4);
      const sum = { src: stems.putWide(0, x), srcType: 0, dst: out, columns: x.length };
      stems.run("rowSum", sum, { scratch, begin: 0, end: 1 });
      expect(stems.getWide(0, out, 1)).toEqual([laneSum(x)]);
    }
  });
});

describe.each([
  { name: "layer norm", centered: true, withBeta: true },
  { name: "layer norm without beta", centered: true, withBeta: false },
  { name: "rms norm", centered: false, withBeta: false },
])("$name", ({ centered: isCentered, withBeta }) => {
  const types = [
    [0, 0, 0],
    [1, 0, 1],
    [2, 1, 0],
    [1, 1, 2],
  ] as const;

  test.each(types)(
    "forward and backward: x %i, parameters %i, result %i",
    (xType, parameterType, outType) => {
      for (const [rows, columns] of SHAPES) {
        for (const zeroCenteredGamma of [false, true]) {
          check(rows, columns, zeroCenteredGamma, xType, parameterType, outType);
        }
      }
    },
  );

  function check(
    rows: number,
    columns: number,
    zeroCenteredGamma: boolean,
    xT: number,
    pT: number,
    oT: number,
  ): void {
    const [roundX, roundP, roundO] = [xT, pT, oT].map((type) => WIDE_TYPES[type]!.round);
    const scratch = newMemory();
    const size = rows * columns;
    const x = evenF32(size, 4, 1 + columns).map((value) => roundX!(Math.fround(value + 1)));
    const upstream = evenF32(size, 2, 99).map(roundX!);
    const gamma = evenF32(columns, 1.5, 5).map(roundP!);
    const beta = evenF32(columns, 1, 6).map(roundP!);
    const normalization: Normalization = {
      gamma,
      centered: isCentered,
      eps: 1e-5,
      zeroCenteredGamma,
      ...(withBeta ? { beta } : {}),
    };
    const savedStatistics = norm(matrix(x, rows, columns), normalization);
    const gradients = normBackward(
      matrix(upstream, rows, columns),
      matrix(x, rows, columns),
      normalization,
      savedStatistics,
    );

    const [src, grad] = [stems.putWide(xT, x), stems.putWide(xT, upstream)];
    const [gammaAddress, b] = [stems.putWide(pT, gamma), withBeta ? stems.putWide(pT, beta) : 0];
    const mean = isCentered ? stems.allocate(4 * rows) : 0;
    const [rstd, out, dx] = [stems.allocate(4 * rows), stems.allocate(4 * size), stems.allocate(4 * size)];
    const [dgamma, dbeta] = [stems.allocate(4 * columns), withBeta ? stems.allocate(4 * columns) : 0];
    const [source, upstreamSource] = [
      { x: src, xType: xT },
      { grad, gradType: xT },
    ];
    const parameters = { gamma: gammaAddress, parameterType: pT, zeroCentered: zeroCenteredGamma };
    const statistics = { mean, rstd, columns };
    for (const [begin, end] of rangesOf(rows)) {
      const results = { beta: b, out, outType: oT, epsilon: 1e-5 };
      stems.run("norm", { ...source, ...parameters, ...statistics, ...results }, { scratch, begin, end });
    }
    expect(stems.getWide(0, rstd, rows)).toEqual(savedStatistics.rstd);
    if (mean) expect(stems.getWide(0, mean, rows)).toEqual(savedStatistics.mean);
    expect(stems.getWide(oT, out, size)).toEqual(savedStatistics.out.flat().map(roundO!));
    for (const [begin, end] of rangesOf(rows)) {
      const args = { ...upstreamSource, ...source, ...parameters, ...statistics, dx, dxType: oT };
      stems.run("normBackward", args, { scratch, begin, end });
    }
    expect(stems.getWide(oT, dx, size)).toEqual(gradients.dx.flat().map(roundO!));
    for (const [begin, end] of rangesOf(columns)) {
      const results = { dgamma, dbeta, parameterType: pT, rows };
      const args = { ...upstreamSource, ...source, ...statistics, ...results };
      stems.run("normParameters", args, { scratch, begin, end });
    }
    expect(stems.getWide(pT, dgamma, columns)).toEqual(gradients.dgamma.map(roundP!));
    if (dbeta) expect(stems.getWide(pT, dbeta, columns)).toEqual(gradients.dbeta.map(roundP!));
  }
});

const NORMS = ["norm", "normBackward", "columnSum"] as const;
describeLaws(useBackend({ threads: 2 }), NORMS, { runs: 150, seed: derivedSeed(19) });
