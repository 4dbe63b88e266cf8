/** Laws of the quantization kernels on matrices wider and taller than any panel that the kernels process. */
import * as fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { Heap } from "../../../../src/backends/wasm/heap.js";
import { type Instance, openInstance } from "../../../../src/backends/wasm/instance.js";
import { Pool } from "../../../../src/backends/wasm/pool.js";
import { ROUNDING, SCALE_RULE, WIDE } from "../../../../src/formats/contract.gen.js";
import { factsOf } from "../../../../src/formats/derive.js";
import type { ScalarFormat } from "../../../../src/formats/scalar.js";
import { draws } from "../../harness/draws.js";

const ELEMENTS = 1 << 19;

interface Rule {
  readonly rule: keyof typeof SCALE_RULE;
  readonly format: ScalarFormat;
  readonly block: number;
}

const RULES: readonly Rule[] = [
  { rule: "f32", format: "e4m3", block: 128 },
  { rule: "e8m0Up", format: "e5m2", block: 32 },
  { rule: "e8m0Floor", format: "e2m3", block: 32 },
  { rule: "e8m0Floor", format: "e2m1", block: 32 },
  { rule: "twoLevel", format: "e2m1", block: 16 },
  { rule: "fourOverSix", format: "e2m1", block: 16 },
];

interface Quantized {
  readonly codes: number[];
  readonly scales: number[];
}

let kernel: Instance;
let pool: Pool;
let [source, codes, scales] = [0, 0, 0];

beforeAll(async () => {
  kernel = await openInstance();
  const reserve = (bytes: number): number => kernel.exports.reserve(bytes) >>> 0;
  [source, codes, scales] = [4, 1, 4].map((size) => reserve(size * ELEMENTS)) as [number, number, number];
  pool = await Pool.open(kernel, new Heap(kernel), 1);
});

function writeSource(values: Float32Array): void {
  new Float32Array(kernel.memory.buffer, source, values.length).set(values);
}

/** Values over many binades, with zeros, a few NaNs and infinities. */
function values(count: number, seed: number): Float32Array {
  let state = seed | 1;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const kind = state >>> 20;
    if (kind < 3) return [Number.NaN, Infinity, -0][kind] as number;
    return ((state & 0xffff) / 0x8000 - 1) * 2 ** ((state >>> 16) % 12);
  });
}

function readResult(rule: Rule, count: number, scaleCount: number): Quantized {
  const isPacked = rule.format === "e2m1";
  const bytes = new Uint8Array(kernel.memory.buffer, codes, ELEMENTS);
  const code = (i: number): number =>
    isPacked ? ((bytes[i >> 1] as number) >> (4 * (i & 1))) & 15 : (bytes[i] as number);
  const stored = rule.rule === "f32" ? Uint32Array : Uint8Array;
  return {
    codes: Array.from({ length: count }, (_, i) => code(i)),
    scales: [...new stored(kernel.memory.buffer, scales, scaleCount)],
  };
}

interface Shape {
  readonly rows: number;
  readonly columns: number;
  readonly transposed?: boolean;
  readonly tileRows?: number;
  readonly stochastic?: boolean;
  /** The row at which the work is divided into two calls; a multiple of tileRows. */
  readonly cut?: number;
}

const NO_PART = { pitch: 0, firstLine: 0, lineWidth: 0, lineStride: 0, firstElement: 0, width: 0, stride: 0 };

/** The fields of a quantization that its shape does not determine. */
function taskOf({ rule, format }: Rule, copy: number) {
  const { word: formatWord } = factsOf(format);
  const nvfp4 = { globalAmax: 2048, e4m3Max: 448, squared: false };
  return {
    scale: { rule: SCALE_RULE[rule], word: formatWord, pow2: true, epsilon: 0, scaling: 0, ...nvfp4 },
    draws: { seedLo: 1, seedHi: 2, offsetLo: 3, offsetHi: 4, copy },
    part: NO_PART,
    src: source,
    srcType: WIDE.f32,
    sharedScales: false,
    limit: 0,
    transforms: false,
    signMask: 0,
    lineAmaxes: 0,
    words: 0,
    dst: codes,
    scales,
  };
}

function quantizeRows(rule: Rule, shape: Shape): Quantized {
  const {
    rows,
    columns,
    transposed: isTransposed = false,
    tileRows = 1,
    stochastic = false,
    cut = 0,
  } = shape;
  const rounding = ROUNDING[stochastic ? "stochastic" : "tiesToEven"];
  const matrix = { rows, columns, transposed: isTransposed, tileRows, tileColumns: rule.block };
  const task = { rounding, ...matrix, ...taskOf(rule, 0) };
  pool.run("quantizeRows", { total: cut }, task);
  pool.run("quantizeRows", { first: cut, total: rows - cut }, task);
  return readResult(rule, rows * columns, rows * Math.ceil(columns / rule.block));
}

function quantizeColumns(rule: Rule, rows: number, columns: number, tileColumns = 1): Quantized {
  const matrix = { rows, columns, transposed: false, tileRows: rule.block, tileColumns };
  const task = { rounding: ROUNDING.tiesToEven, ...matrix, ...taskOf(rule, 1) };
  pool.run("quantizeColumns", { total: rows }, task);
  return readResult(rule, rows * columns, Math.ceil(rows / rule.block) * columns);
}

function transpose<T>(matrix: ArrayLike<T>, rows: number, columns: number): T[] {
  return Array.from(
    { length: rows * columns },
    (_, position) => matrix[(position % rows) * columns + Math.floor(position / rows)] as T,
  );
}

const seed = fc.integer();
const rule = fc.constantFrom(...RULES);
/** The number of blocks along the short side, and whether the long side runs down. */
const aspect = fc.tuple(fc.integer({ min: 1, max: 3 }), fc.boolean());
const OPTIONS = { numRuns: draws(12) };

/** Rows and columns in whole blocks; the long side exceeds every panel. */
function sizeOf({ block }: Rule, [short, isTall]: readonly [number, boolean]): [number, number] {
  const longSide = Math.min(300, Math.floor(ELEMENTS / (block * block * short)));
  return isTall ? [block * longSide, block * short] : [block * short, block * longSide];
}

function expectSame(actual: Quantized, expected: Quantized): void {
  for (const field of ["codes", "scales"] as const) {
    expect(actual[field].length).toBe(expected[field].length);
    const index = actual[field].findIndex((value, i) => value !== expected[field][i]);
    expect({ part: field, at: index, value: actual[field][index] }).toEqual({
      part: field,
      at: -1,
      value: undefined,
    });
  }
}

describe("quantizeRows", () => {
  it("quantizes each row as if it were alone", () => {
    fc.assert(
      fc.property(rule, aspect, seed, (r, size, s) => {
        const [rows, columns] = sizeOf(r, size);
        const x = values(rows * columns, s);
        writeSource(x);
        const allRows = quantizeRows(r, { rows, columns });
        const row = Math.abs(s) % rows;
        writeSource(x.subarray(row * columns, (row + 1) * columns));
        const singleRow = quantizeRows(r, { rows: 1, columns });
        const width = columns / r.block;
        const ownScale = {
          codes: allRows.codes.slice(row * columns, (row + 1) * columns),
          scales: allRows.scales.slice(row * width, (row + 1) * width),
        };
        expectSame(ownScale, singleRow);
      }),
      OPTIONS,
    );
  });

  it("gives the same for a transposed source as for the transpose, however the work is divided among threads", () => {
    fc.assert(
      fc.property(
        rule,
        aspect,
        fc.boolean(),
        fc.boolean(),
        seed,
        fc.nat(100),
        (r, size, square, stochastic, s, c) => {
          const [rows, columns] = sizeOf(r, size);
          const tileRows = square ? r.block : 1;
          const draws = stochastic && r.rule !== "fourOverSix";
          const cut = tileRows * (c % (rows / tileRows));
          const x = values(rows * columns, s);
          writeSource(x);
          const got = quantizeRows(r, { rows, columns, transposed: true, tileRows, stochastic: draws, cut });
          writeSource(Float32Array.from(transpose(x, columns, rows)));
          expectSame(got, quantizeRows(r, { rows, columns, tileRows, stochastic: draws }));
        },
      ),
      OPTIONS,
    );
  });

  it("gives all rows of a square tile one scale", () => {
    fc.assert(
      fc.property(rule, aspect, seed, (r, size, s) => {
        const [rows, columns] = sizeOf(r, size);
        writeSource(values(rows * columns, s));
        const width = columns / r.block;
        const square = quantizeRows(r, { rows, columns, tileRows: r.block });
        const ofTile = square.scales.map((_, i) => {
          const top = Math.floor(i / width / r.block) * r.block;
          return square.scales[top * width + (i % width)] as number;
        });
        expectSame(square, { ...square, scales: ofTile });
      }),
      OPTIONS,
    );
  });
});

describe("quantizeColumns", () => {
  const inPlace = fc.constantFrom(
    ...RULES.filter(({ rule: name }) => name !== "twoLevel" && name !== "fourOverSix"),
  );

  it("gives the transposes of the codes and scales of the transpose", () => {
    fc.assert(
      fc.property(inPlace, aspect, seed, (r, size, s) => {
        const [rows, columns] = sizeOf(r, size);
        writeSource(values(rows * columns, s));
        const columnsQuantized = quantizeColumns(r, rows, columns);
        const rowsQuantized = quantizeRows(r, { rows: columns, columns: rows, transposed: true });
        const transposedCodes = {
          codes: transpose(columnsQuantized.codes, rows, columns),
          scales: transpose(columnsQuantized.scales, rows / r.block, columns),
        };
        expectSame(transposedCodes, rowsQuantized);
      }),
      OPTIONS,
    );
  });

  it("gives square tiles the codes that quantizeRows gives them", () => {
    fc.assert(
      fc.property(inPlace, aspect, seed, (r, size, s) => {
        const [rows, columns] = sizeOf(r, size);
        writeSource(values(rows * columns, s));
        const columnsQuantized = quantizeColumns(r, rows, columns, r.block);
        const { codes: expectedCodes } = quantizeRows(r, { rows, columns, tileRows: r.block });
        expectSame(columnsQuantized, { codes: expectedCodes, scales: columnsQuantized.scales });
      }),
      OPTIONS,
    );
  });
});
