/** Arbitraries of wide matrices, with values planted where block scaling tends to go wrong. */
import * as fc from "fast-check";
import { type Tile, tileSize } from "../../src/formats/block.js";
import { atLeastZero, integer, needed, optionsOf } from "../../src/options.js";
import { wideDType } from "../../src/tensor/require.js";
import { asMatrix, elementCount, ownShape, type Shape, type WideDType } from "../../src/tensor/shape.js";
import { fromCodes, type PlainTensor } from "../values/plain.js";
import { bitsOf } from "../values/values.js";
import { narrowed, specialPattern } from "./patterns.js";
import { splitmix32 } from "./random.js";

const SIGN = 0x80000000;

/** The aim of a matrix: the block size, and the largest value of the element format. */
export interface MatrixAim {
  /** The type of the matrix. */
  readonly dtype: WideDType;
  /** Rows and columns. */
  readonly shape: Shape;
  /** The block length; 0 for one scale per tensor. */
  readonly block: number;
  /** The element format's largest value. */
  readonly max: number;
}

const checkAim = optionsOf<MatrixAim>({
  dtype: needed(wideDType),
  shape: needed((_user, _name, shape) => ownShape(shape as Shape)),
  block: needed(integer(0)),
  max: needed(atLeastZero),
});
const index32 = integer(-(2 ** 31), 2 ** 31 - 1);
const size = integer(1);
const anySize = integer(0);

/** The elements before planting: a constant, or random bits with limited exponents and mantissas. */
type Base =
  | { readonly kind: "constant"; readonly bits: number }
  | {
      readonly kind: "seeded";
      readonly seed: number;
      readonly range: readonly [low: number, count: number];
      readonly mantissaBits: number;
    };

/** A value that is written over one element or one tile. */
type Plant =
  | { readonly kind: "element"; readonly at: Place; readonly bits: number }
  /** The amax of the tile becomes max * 2^k, where the scale changes, or an f32 one or two steps away. */
  | { readonly kind: "boundary"; readonly at: Place; readonly k: number; readonly steps: number }
  /** All elements of the tile become zero, or tiny relative to the rest of the tensor. */
  | { readonly kind: "dead"; readonly at: Place; readonly exponent: number }
  /** All elements of the tile become one special value. */
  | { readonly kind: "filled"; readonly at: Place; readonly bits: number; readonly alternating: boolean }
  /** A special value at an index where a vector access may begin or end, counted over the whole tensor. */
  | { readonly kind: "end"; readonly index: number; readonly bits: number };

/**
 * An element (negative indices count from the end) and the tile around it: along the row, along the column, or square.
 */
interface Place {
  readonly row: number;
  readonly column: number;
  readonly tile: "row" | "column" | "square";
}

/** Indices where vectors, blocks, tiles and tensors begin and end, counted from the front and from the back. */
const ENDS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096].flatMap((n) => [n - 1, n, -n, -n - 1]);

/** An index of an element, row or column: any, or one where a vector, block or tile begins or ends. */
export function anIndex(): fc.Arbitrary<number> {
  return fc.oneof(
    { weight: 3, arbitrary: fc.nat() },
    { weight: 1, arbitrary: fc.constantFrom(0, -1) },
    { weight: 2, arbitrary: fc.constantFrom(...ENDS) },
  );
}

/** Maps `index` into 0 to `count` - 1; a negative index counts from the end. Throws `ArgumentError` if `count` is 0. */
export function indexIn(index: number, count: number): number {
  index32("indexIn", "index", index);
  size("indexIn", "count", count);
  return ((index % count) + count) % count;
}

const constant: fc.Arbitrary<Base> = fc
  .constantFrom(0, SIGN, 0x3f800000)
  .map((bits) => ({ kind: "constant", bits }));

const seeded: fc.Arbitrary<Base> = fc.record({
  kind: fc.constant("seeded"),
  seed: fc.nat(),
  range: fc.constantFrom(
    [-1, 3],
    [-1, 3],
    [-8, 16],
    [-8, 16],
    [-30, 40],
    [-126, 252],
    [-149, 40],
    [90, 37],
  ) as fc.Arbitrary<[number, number]>,
  mantissaBits: fc.constantFrom(1, 3, 7, 23),
} as const);

const place: fc.Arbitrary<Place> = fc.record({
  row: anIndex(),
  column: anIndex(),
  tile: fc.constantFrom("row", "column", "square"),
} as const);

const plant: fc.Arbitrary<Plant> = fc.oneof(
  fc.record({ kind: fc.constant("element"), at: place, bits: specialPattern() } as const),
  fc.record({
    kind: fc.constant("boundary"),
    at: place,
    k: fc.oneof(
      { weight: 3, arbitrary: fc.integer({ min: -4, max: 4 }) },
      fc.integer({ min: -149, max: 120 }),
    ),
    steps: fc.constantFrom(0, 1, -1, 2, -2),
  } as const),
  fc.record({
    kind: fc.constant("dead"),
    at: place,
    exponent: fc.constantFrom(-200, -17, -19, -20, -22, -140),
  } as const),
  fc.record({
    kind: fc.constant("filled"),
    at: place,
    bits: specialPattern(),
    alternating: fc.boolean(),
  } as const),
  fc.record({ kind: fc.constant("end"), index: anIndex(), bits: specialPattern() } as const),
);

/**
 * Matrices for `aim`. They shrink to a constant with few planted values. Throws `ArgumentError` or `ShapeError` for an
 * invalid aim.
 */
export function wideMatrix<D extends WideDType>(
  aim: MatrixAim & { readonly dtype: D },
): fc.Arbitrary<PlainTensor<D>> {
  const ownAim = checkAim("wideMatrix", aim, "aim");
  const base = fc.oneof({ weight: 1, arbitrary: constant }, { weight: 4, arbitrary: seeded });
  return fc.tuple(base, fc.array(plant, { maxLength: 6 })).map(([start, plants]) => {
    const bits = fill(start, elementCount(ownAim.shape));
    for (const each of plants) apply(each, bits, ownAim);
    return fromCodes(
      ownAim.dtype,
      ownAim.shape,
      bits.map((pattern) => narrowed(pattern, ownAim.dtype)),
    );
  });
}

function fill(base: Base, count: number): Uint32Array {
  if (base.kind === "constant") return new Uint32Array(count).fill(base.bits);
  const next = splitmix32(base.seed);
  const [low, range] = base.range;
  const kept = 0x7fffff & ~((1 << (23 - base.mantissaBits)) - 1);
  const bits = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    const exponent = low + (next() % range);
    const word = next();
    const mantissa = word & kept;
    const magnitude = exponent >= -126 ? ((exponent + 127) << 23) | mantissa : subnormal(mantissa, exponent);
    bits[i] = (magnitude | (word & SIGN)) >>> 0;
  }
  return bits;
}

/** The f32 nearest to 1.mantissa * 2^exponent for exponents below -126, ties to even. */
function subnormal(mantissa: number, exponent: number): number {
  const dropped = Math.min(-126 - exponent, 25);
  const significand = 0x800000 | mantissa;
  const below = significand >>> dropped;
  const rest = significand & ((1 << dropped) - 1);
  const half = 1 << (dropped - 1);
  return below + (rest > half || (rest === half && below % 2 === 1) ? 1 : 0);
}

function apply(planted: Plant, bits: Uint32Array, { shape, block, max }: MatrixAim): void {
  const [rows, columns] = asMatrix(shape);
  if (bits.length === 0) return;
  if (planted.kind === "end") {
    bits[indexIn(planted.index, bits.length)] = planted.bits;
    return;
  }
  const [row, column] = [indexIn(planted.at.row, rows), indexIn(planted.at.column, columns)];
  const here = row * columns + column;
  if (planted.kind === "element") {
    bits[here] = planted.bits;
    return;
  }
  if (planted.kind === "filled") {
    let count = 0;
    for (const i of tile(planted.at.tile, [row, column], [rows, columns], block))
      bits[i] = (planted.bits ^ (planted.alternating && count++ % 2 === 1 ? SIGN : 0)) >>> 0;
    return;
  }
  const amax =
    planted.kind === "boundary"
      ? bitsOf(max * 2 ** planted.k) + planted.steps
      : bitsOf(2 ** planted.exponent);
  for (const i of tile(planted.at.tile, [row, column], [rows, columns], block)) {
    const sign = (bits[i] as number) & SIGN;
    const magnitude = (bits[i] as number) & 0x7fffffff;
    if (planted.kind === "dead" || magnitude > amax)
      bits[i] = (sign | (planted.kind === "dead" ? amax : amax >>> 1)) >>> 0;
  }
  if (planted.kind === "boundary") bits[here] = (((bits[here] as number) & SIGN) | Math.max(amax, 0)) >>> 0;
}

/** The indices of the tile around an element. */
function* tile(
  kind: Place["tile"],
  [row, column]: readonly [number, number],
  [rows, columns]: readonly [number, number],
  block: number,
): Generator<number> {
  const [height, width] = [kind === "row" ? 1 : block || rows, kind === "column" ? 1 : block || columns];
  const [top, left] = [row - (row % height), column - (column % width)];
  for (let r = top; r < Math.min(top + height, rows); r++) {
    for (let c = left; c < Math.min(left + width, columns); c++) yield r * columns + c;
  }
}

/**
 * Shapes with at most about `most` elements, whose rows and columns are multiples of `multiple`: empty, one element, one past a
 * block, ragged, with up to two leading dimensions. Throws `ArgumentError` for invalid sizes.
 */
export function matrixShape(multiple: number, block: number, most = 8192): fc.Arbitrary<Shape> {
  size("matrixShape", "multiple", multiple);
  anySize("matrixShape", "block", block);
  anySize("matrixShape", "most", most);
  const ragged = [0, 1, 2, 3, 5, 17, 33, Math.max(block - 1, 4), block || 6, block + 1, block + 3];
  const side =
    multiple === 1
      ? fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(...ragged))
      : fc
          .oneof({ weight: 6, arbitrary: fc.integer({ min: 1, max: 3 }) }, fc.constantFrom(0, 4, 5))
          .map((n) => n * multiple);
  return fc
    .tuple(side, side, fc.constantFrom(1, 1, 2, 3, 4, 32), fc.constantFrom(2, 1, 3))
    .map(([rows, columns, lead, rank]) => {
      const fitting = rows * columns > most ? multiple : rows;
      if (rank === 1 && multiple === 1) return [columns];
      const outer = fitting % lead === 0 ? [lead, fitting / lead] : [fitting];
      return rank === 3 ? [1, ...outer, columns] : [...outer, columns];
    });
}

/** The line length for tiles that are whole lines: longer than vectors and warps, and a multiple of four. */
const LINE = 300;

/** The block length to draw shapes and matrices for: 0 for one scale per tensor. */
export function drawnBlock(tile: Tile): number {
  return Math.min(tileSize(tile)[1], LINE);
}

/** Numbers of rows at the edges of blocks and tiles, and one off. */
const ROW_EDGES = [1, 7, 15, 16, 17, 31, 32, 33, 63, 127, 128, 129];

/**
 * Shapes with at most about `most` elements, whose columns are multiples of `multiple`: the shapes of `matrixShape`, and shapes
 * with any number of rows. Throws `ArgumentError` for invalid sizes.
 */
export function anyRows(multiple: number, block: number, most = 8192): fc.Arbitrary<Shape> {
  const fitting = matrixShape(multiple, block, most);
  if (multiple === 1) return fitting;
  const rows = fc.oneof(fc.integer({ min: 1, max: 130 }), fc.constantFrom(...ROW_EDGES));
  return fc
    .tuple(fitting, fc.option(rows, { freq: 2 }), fc.constantFrom(1, 2, 3))
    .map(([shape, any, rank]) => {
      const columns = shape.at(-1) as number;
      if (any === null || any * columns > most) return shape;
      if (rank === 1 && any === 1) return [columns];
      return rank === 3 && any % 3 === 0 ? [3, any / 3, columns] : [any, columns];
    });
}
