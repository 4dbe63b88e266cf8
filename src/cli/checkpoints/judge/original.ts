/** Compares a quantized weight with what it was made from, under its own reading and under common wrong ones. */
import { tensorDType } from "../../../io/dtypes.js";
import { isWide, sameShape, storageBits, type WideDType } from "../../../tensor/shape.js";
import { CODE_TYPES } from "../stored/code-types.js";
import { conventionOf } from "../stored/conventions.js";
import type { Checkpoint, StoredTensor } from "../stored/open.js";
import { type Codes, codeRows } from "../stored/rows.js";
import { readFloats, type Scales, scaleOf, toFloats } from "../stored/scales.js";
import { transposedShape, transposing } from "../stored/transpose.js";
import { matricesOf, type QuantizedWeight } from "../stored/weight.js";
import { type Finding, type FindingName, finding } from "./findings.js";

/** The error of a weight against its original. */
export interface OriginalError {
  /** The root mean square of the differences over that of the original. */
  readonly relative: number;
  /** The largest magnitude of a difference. */
  readonly max: number;
}

/** The largest relative error that rounding to codes of so many bits explains. */
const EXPLAINED: Readonly<Record<number, number>> = { 8: 0.1, 6: 0.15, 4: 0.3 };

/** Other readings: the finding if one fits, and the index of the scale or of the code that it takes. */
interface Reading {
  readonly finding: FindingName;
  readonly what: string;
  readonly factor: number;
  /** The scales of blocks under this reading; undefined if it has none. */
  readonly scales: (scales: Scales, weight: QuantizedWeight) => Float32Array | undefined;
  readonly swapped?: true;
}

const inverse = (values: Float32Array): Float32Array => values.map((value) => 1 / value);

const READINGS: readonly Reading[] = [
  {
    finding: "codes-fnuz",
    what: "half of these values are those of the original",
    factor: 0.5,
    scales: ({ values }) => values,
  },
  {
    finding: "codes-fnuz",
    what: "twice these values are those of the original",
    factor: 2,
    scales: ({ values }) => values,
  },
  {
    finding: "scale-inverted",
    what: "reciprocal scales give the original",
    factor: 1,
    scales: ({ values }) => inverse(values),
  },
  {
    finding: "nibbles-swapped",
    what: "with the codes of a byte exchanged, these are the values of the original",
    factor: 1,
    scales: ({ values }, { type }) => (CODE_TYPES[type].bits === 4 ? values : undefined),
    swapped: true,
  },
  {
    finding: "scales-swizzled",
    what: "scales in the other order give the original",
    factor: 1,
    scales: ({ relaid }) => relaid,
  },
  {
    finding: "scale-axis",
    what: "transposed scales give the original",
    factor: 1,
    scales: ({ values }, { geometry: { grid, kind } }) =>
      grid[0] === grid[1] && grid[0] > 1 && kind !== "whole" ? transposed(values, grid[0]) : undefined,
  },
];

function transposed(values: Float32Array, size: number): Float32Array {
  const area = size * size;
  return values.map((_, at) => {
    const within = at % area;
    return values[at - within + (within % size) * size + Math.floor(within / size)] ?? 0;
  });
}

/** The error of a weight, and what it says; only findings if the original does not have it. */
export async function compareOriginal(
  weight: QuantizedWeight,
  scales: Scales,
  original: Checkpoint,
): Promise<{ readonly error?: OriginalError; readonly findings: readonly Finding[] }> {
  const stored = original.tensors.get(weight.name);
  const dtype = stored && tensorDType(stored.entry.dtype);
  const isTransposed = conventionOf(weight.convention).transposedWide === true;
  const shape = isTransposed ? transposedShape(weight.shape) : weight.shape;
  if (!stored || !dtype || !isWide(dtype) || !sameShape(stored.entry.shape, shape)) {
    const what = stored ? `is ${stored.entry.dtype} [${stored.entry.shape}]` : "is not there";
    return { findings: [finding("original-absent", weight.name, `${original.path}: ${what}`)] };
  }
  const own: Reading = { finding: "values-apart", what: "", factor: 1, scales: ({ values }) => values };
  const factors = weight.factors && (await readFloats(weight.factors));
  const sums = [own, ...READINGS].flatMap((reading) => {
    const values = reading.scales(scales, weight);
    return values ? [new Sum(reading, weight, { ...scales, values }, factors)] : [];
  });
  const read = isTransposed ? transposedReader(stored, dtype) : reader(stored, dtype);
  let power = 0;
  for await (const { matrix, row, columns, codes } of codeRows(weight)) {
    const values = toFloats(stored.entry.dtype, await read(matrix, row * columns, codes.length));
    for (const value of values) power += value * value;
    for (const sum of sums) sum.add(codes, values, matrix, row, columns);
  }
  const relative = (sum: Sum): number =>
    power > 0 ? Math.sqrt(sum.squares / power) : sum.squares > 0 ? Infinity : 0;
  const [mine, ...others] = sums as [Sum, ...Sum[]];
  const error = { relative: relative(mine), max: mine.max };
  const limit = EXPLAINED[CODE_TYPES[weight.type].bits] ?? 0.3;
  if (error.relative <= limit) return { error, findings: [] };
  const told = `the relative error is ${error.relative.toPrecision(3)}`;
  const best = others.toSorted((a, b) => a.squares - b.squares)[0];
  const found =
    best && relative(best) < Math.min(limit, error.relative / 2)
      ? finding(best.reading.finding, weight.name, `${told}; ${best.reading.what}`)
      : finding("values-apart", weight.name, `${told}; rounding explains ${limit}`);
  return { error, findings: [found] };
}

/** Reads the bytes of `count` elements of a matrix from the element `at` on, by rows of the quantized weight. */
type Read = (matrix: number, at: number, count: number) => Promise<Uint8Array>;

function reader({ shard, entry }: StoredTensor, dtype: WideDType): Read {
  const [, rows, columns] = matricesOf(entry.shape);
  const width = storageBits(dtype) / 8;
  return (matrix, at, count) => {
    const first = matrix * rows * columns + at;
    return shard.read(entry, first * width, (first + count) * width);
  };
}

/** As `reader`, of matrices that are stored transposed: one of them is held in memory. */
function transposedReader(stored: StoredTensor, dtype: WideDType): Read {
  const { shape } = stored.entry;
  const [, rows, columns] = matricesOf(shape);
  const read = reader(stored, dtype);
  const width = storageBits(dtype) / 8;
  let held: Uint8Array = new Uint8Array();
  let current = -1;
  const take = transposing(shape, width, async (matrix) => {
    held = matrix;
  });
  return async (matrix, at, count) => {
    if (matrix !== current) await take(await read(matrix, 0, rows * columns));
    current = matrix;
    return held.subarray(at * width, (at + count) * width);
  };
}

/** The sum of squared differences under one reading. */
class Sum {
  squares = 0;
  max = 0;
  readonly #values: Float64Array;

  constructor(
    readonly reading: Reading,
    private readonly weight: QuantizedWeight,
    private readonly scales: Scales,
    /** The factor of each column. */
    private readonly factors: Float32Array | undefined,
  ) {
    this.#values = CODE_TYPES[weight.type].values;
  }

  add(codes: Codes, original: Float32Array, matrix: number, row: number, columns: number): void {
    const { kind, block, grid } = this.weight.geometry;
    const [height, width] = block;
    const flip = this.reading.swapped ? 1 : 0;
    for (let at = 0; at < codes.length; at += columns) {
      const line = kind === "whole" ? 0 : matrix * grid[0] + Math.floor((row + at / columns) / height);
      for (let begin = 0, index = line * grid[1]; begin < columns; begin += width, index++) {
        const scale = this.reading.factor * scaleOf(this.scales, this.scales.values[index] ?? Number.NaN);
        const end = Math.min(columns, begin + width);
        for (let column = begin; column < end; column++) {
          const value = this.#values[codes[at + (column ^ flip)] ?? 0] ?? 0;
          const factor = this.factors?.[column] ?? 1;
          const difference = Math.abs(value * scale * factor - (original[at + column] ?? 0));
          this.squares += difference * difference;
          if (difference > this.max) this.max = difference;
        }
      }
    }
  }
}
