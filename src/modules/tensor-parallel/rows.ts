/** Operands of products whose rows are divided among ranks, and products beside the exchange of their rows. */
import { chunksOf, type ReducedRows, type RowRange, reducedByChunks } from "../../collectives/by-chunks.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { rowwiseRowsOf } from "../../collectives/quantized.js";
import { isTensorWide, tileSize } from "../../formats/block.js";
import { onSideStream } from "../../ops/side-stream.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { asMatrix, byteLength, type Shape, type WideDType } from "../../tensor/shape.js";
import { Tensor, VIEW_ALIGNMENT, viewOrSlice } from "../../tensor/tensor.js";

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
export interface ArrivingChunk<T = Operand> {
  readonly place: RowRange;
  readonly rows: T;
}

/** All rows, or chunks of them in the order in which they arrive. */
export type Rows = Operand | readonly ArrivingChunk[];

export function isArriving(rows: Rows): rows is readonly ArrivingChunk[] {
  return Array.isArray(rows);
}

/** The number of chunks of rows. Four took longer on four H200 (docs/distributed.md). */
const CHUNKS = 2;

/** The number of rows of a rank from which on they are cut by default: the number that was measured. */
const ROWS_TO_CUT = 8192;

/** How rows may be cut. */
export interface Cut {
  /** The number of rows that a chunk is a multiple of. */
  readonly multiple: number;
  /** What is computed of the rows. */
  readonly made: Made;
  /** The option of that name (`ParallelOptions`). */
  readonly overlap: boolean | undefined;
  /** Whether rows are cut by default if there are enough of them. */
  readonly isMeasured: boolean;
}

/**
 * Returns the number of chunks into which `rows` rows are cut. It is 1 if the chunks would not be whole blocks, or if their part
 * of the result could not be a view.
 */
export function chunksFor(rows: number, { multiple, made, overlap, isMeasured }: Cut): number {
  const [, columns] = asMatrix(made.shape);
  const count = rows / CHUNKS;
  const fits = count > 0 && count % multiple === 0 && columns > 0;
  const isAligned = fits && byteLength(made.dtype, [count, columns]) % VIEW_ALIGNMENT === 0;
  return isAligned && (overlap ?? (isMeasured && rows >= ROWS_TO_CUT)) ? CHUNKS : 1;
}

/** The number of rows of a block of the rowwise copy: a scale belongs to rows of one block alone. */
export function rowsOfBlock(x: Operand): number {
  return hasBlocks(x) ? tileSize(x.spec.tile)[0] : 1;
}

/** Whether an operand is quantized with more scales than one. */
export function hasBlocks(x: Operand): x is QuantizedTensor {
  return x instanceof QuantizedTensor && !isTensorWide(x.spec.tile);
}

/** Rows in high precision, of which this rank has its own. */
export class WideRows {
  #arriving: readonly ArrivingChunk<Wide>[] | undefined;
  #whole: Wide | undefined;

  constructor(
    private readonly group: ProcessGroup | undefined,
    readonly own: Wide,
  ) {}

  /** Starts the exchange of rows in chunks. */
  arrivals(chunks: number): Rows {
    const { group, own } = this;
    if (!group || chunks === 1) return this.whole();
    const [rows] = asMatrix(own.shape);
    this.#arriving = chunksOf(rows, chunks).map((place) => {
      const gather = (): Wide => {
        using part = rowsOf(own, place) as Wide;
        return group.allGather(part);
      };
      return { place, rows: onSideStream(own.backend, gather) };
    });
    return this.#arriving;
  }

  /** Returns all rows. The result is a new tensor if rows were gathered, else the own one. */
  whole(): Wide {
    const { group, own } = this;
    if (!group) return own;
    this.#whole ??= this.#arriving ? this.#assembled(this.#arriving, group.size) : group.allGather(own);
    return this.#whole;
  }

  #assembled(chunks: readonly ArrivingChunk<Wide>[], ranks: number): Wide {
    const [first = 0, ...rest] = this.own.shape;
    const whole = assembled(chunks, ranks).reshape([first * ranks, ...rest]) as Wide;
    for (const { rows } of chunks) rows.dispose();
    return whole;
  }
}

/** All rows in their order. */
export function assembled(chunks: readonly ArrivingChunk<Tensor>[], ranks: number): Tensor {
  const { backend, dtype, shape } = (chunks[0] as ArrivingChunk<Tensor>).rows;
  const [, columns] = asMatrix(shape);
  const own = chunks.reduce((sum, { place: { count } }) => sum + count, 0);
  const out = new Tensor(backend, dtype, [ranks * own, columns]);
  for (const { place, rows } of chunks) {
    for (let rank = 0; rank < ranks; rank++) {
      using part = viewOrSlice(rows, rank * place.count * columns, [place.count, columns]);
      out.paste(part, (rank * own + place.first) * columns);
    }
  }
  return out;
}

/** Computes the product of all rows, or of each chunk as it arrives. */
export function productOf(rows: Rows, product: Product, { shape, dtype }: Made): Wide {
  if (!isArriving(rows)) return product(rows);
  const [one] = rows as readonly [ArrivingChunk];
  const out = new Tensor(one.rows.backend, dtype, shape);
  const [all, columns] = asMatrix(shape);
  const own = rows.reduce((sum, { place: { count } }) => sum + count, 0);
  for (const {
    place: { first, count },
    rows: chunk,
  } of rows) {
    for (let rank = 0; rank < all / own; rank++) {
      using part = rowsOf(chunk, { first: rank * count, count });
      using into = out.view((rank * own + first) * columns, [count, columns]);
      product(part, into);
    }
  }
  return out;
}

/** Computes the product of x and reduces it over the ranks in chunks: each rank gets its rows of the sum, or all of them. */
export function reducedProduct(
  group: ProcessGroup,
  x: Operand,
  product: Product,
  how: Omit<ReducedRows, "make">,
): Wide {
  const make = (rows: RowRange, out: Wide): void => {
    using part = rowsOf(x, rows);
    product(part, out);
  };
  const [first = 0, ...rest] = how.shape;
  const own = how.scatters ? first / group.size : first;
  return reducedByChunks(group, { ...how, make }).reshape([own, ...rest]);
}

/** Rows of an operand, as a matrix. */
function rowsOf(x: Operand, rows: RowRange): Operand {
  if (x instanceof QuantizedTensor) return rowwiseRowsOf(x, rows);
  const [, columns] = asMatrix(x.shape);
  return viewOrSlice(x, rows.first * columns, [rows.count, columns]);
}
