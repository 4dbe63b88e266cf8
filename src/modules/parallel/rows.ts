/** Operands of products whose rows are divided among ranks, and products beside the exchange of their rows. */
import {
  allReduceByPieces,
  piecesOf,
  type RowRange,
  reduceScatterByPieces,
} from "../../distributed/by-pieces.js";
import type { ProcessGroup } from "../../distributed/group.js";
import { rowwiseRowsOf, shared } from "../../distributed/quantized.js";
import { isTensorWide, tileSize } from "../../formats/block.js";
import { onSideStream } from "../../ops/side-stream.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { asMatrix, byteLength, type Shape, type WideDType } from "../../tensor/shape.js";
import { Tensor, VIEW_ALIGNMENT } from "../../tensor/tensor.js";

type Wide = Tensor<WideDType>;

/** An operand of a product. */
export type Operand = Wide | QuantizedTensor;

/** Computes the product of these rows. `out`, if given, receives it; else the result is a new tensor. */
export type Product = (rows: Operand, out?: Wide) => Wide;

/** The result of a product: its shape and its type. */
export interface Made {
  readonly shape: Shape;
  readonly dtype: WideDType;
}

/** The result of the product of x [..., K] and a matrix with so many columns. */
export function madeOf(shape: Shape, columns: number, dtype: WideDType): Made {
  return { shape: [...shape.slice(0, -1), columns], dtype };
}

/** The rows that all ranks have at the same place among their own: `rows` has them rank by rank. */
export interface ArrivingPiece {
  readonly place: RowRange;
  readonly rows: Operand;
}

/** All rows, or pieces of them in the order in which they arrive. */
export type Rows = Operand | readonly ArrivingPiece[];

export function isArriving(rows: Rows): rows is readonly ArrivingPiece[] {
  return Array.isArray(rows);
}

/** The number of pieces of rows. Four took longer on four H200 (docs/distributed.md). */
const PIECES = 2;

/** The number of rows of a rank from which on they are cut by default: the number that was measured. */
const ROWS_TO_CUT = 8192;

/**
 * Returns the number of pieces into which `rows` rows are cut. It is 1 if the pieces would not be whole multiples of `multiple`
 * rows, or if their rows of the result could not be views. `overlap` is the layer's option.
 */
export function piecesFor(
  rows: number,
  {
    multiple,
    made,
    overlap,
  }: { readonly multiple: number; readonly made: Made; readonly overlap?: boolean | undefined },
): number {
  const [, columns] = asMatrix(made.shape);
  const count = rows / PIECES;
  const fits = count > 0 && count % multiple === 0 && columns > 0;
  const isAligned = fits && byteLength(made.dtype, [count, columns]) % VIEW_ALIGNMENT === 0;
  return isAligned && (overlap ?? rows >= ROWS_TO_CUT) ? PIECES : 1;
}

/** The number of rows that share a scale. */
export function blockRows(x: Operand): number {
  return !(x instanceof QuantizedTensor) || isTensorWide(x.spec.tile) ? 1 : tileSize(x.spec.tile)[1];
}

/** Rows in high precision, of which this rank has its own. */
export class WideRows {
  #arriving: readonly ArrivingPiece[] | undefined;
  #whole: Wide | undefined;

  constructor(
    private readonly group: ProcessGroup | undefined,
    readonly own: Wide,
  ) {}

  /** Starts the exchange of rows in pieces. */
  arrivals(pieces: number): Rows {
    const { group, own } = this;
    if (!group || pieces === 1) return this.whole();
    const [rows] = asMatrix(own.shape);
    this.#arriving = piecesOf(rows, pieces).map((place) => {
      const part = rowsOf(own, place) as Wide;
      return { place, rows: onSideStream(own.backend, () => group.allGather(part)) };
    });
    return this.#arriving;
  }

  /** Returns all rows. The result is a new tensor if rows were gathered, else the own one. */
  whole(): Wide {
    const { group, own } = this;
    if (!group) return own;
    const [first = 0, ...rest] = own.shape;
    const shape = [first * group.size, ...rest];
    this.#whole ??= this.#arriving
      ? (assembled(
          this.#arriving.map(({ place, rows }) => ({ place, rows: rows as Wide })),
          group.size,
        ).reshape(shape) as Wide)
      : group.allGather(own);
    return this.#whole;
  }
}

/** All rows in their order. */
export function assembled(
  pieces: readonly { readonly place: RowRange; readonly rows: Tensor }[],
  ranks: number,
): Tensor {
  const { backend, dtype, shape } = (pieces[0] as { readonly rows: Tensor }).rows;
  const [, columns] = asMatrix(shape);
  const own = pieces.reduce((sum, { place: { count } }) => sum + count, 0);
  const out = new Tensor(backend, dtype, [ranks * own, columns]);
  for (const { place, rows } of pieces) {
    for (let rank = 0; rank < ranks; rank++) {
      const part = shared(rows, rank * place.count * columns, [place.count, columns]);
      out.paste(part, (rank * own + place.first) * columns);
    }
  }
  return out;
}

/** Computes the product of all rows, or of each piece as it arrives. */
export function productOf(rows: Rows, product: Product, { shape, dtype }: Made): Wide {
  if (!isArriving(rows)) return product(rows);
  const [one] = rows as readonly [ArrivingPiece];
  const out = new Tensor(one.rows.backend, dtype, shape);
  const [all, columns] = asMatrix(shape);
  const own = rows.reduce((sum, { place: { count } }) => sum + count, 0);
  for (const { place, rows: piece } of rows) {
    for (let rank = 0; rank < all / own; rank++) {
      const { first, count } = place;
      const part = rowsOf(piece, { first: rank * count, count });
      product(part, out.view((rank * own + first) * columns, [count, columns]));
    }
  }
  return out;
}

/** Computes the product of x and reduces it over the ranks in pieces: each rank gets its rows of the sum, or all of them. */
export function reducedProduct(
  group: ProcessGroup,
  x: Operand,
  product: Product,
  { shape, dtype, pieces, scatters }: Made & { readonly pieces: number; readonly scatters: boolean },
): Wide {
  const make = (rows: RowRange, out: Wide): unknown => product(rowsOf(x, rows), out);
  const reduce = scatters ? reduceScatterByPieces : allReduceByPieces;
  const [first = 0, ...rest] = shape;
  return reduce(group, { shape, dtype, pieces, make }).reshape([
    scatters ? first / group.size : first,
    ...rest,
  ]);
}

/** Rows of an operand, as a matrix. */
function rowsOf(x: Operand, rows: RowRange): Operand {
  if (x instanceof QuantizedTensor) return rowwiseRowsOf(x, rows);
  const [, columns] = asMatrix(x.shape);
  return shared(x, rows.first * columns, [rows.count, columns]);
}
