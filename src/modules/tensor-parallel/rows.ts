/** Operands of products whose rows are divided among ranks, and products that overlap with the exchange of these rows. */
import { chunksOf, type ReducedRows, type RowRange, reduceByChunks } from "../../collectives/by-chunks.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { rowwiseRowsOf } from "../../collectives/quantized.js";
import { isTensorWide, tileSize } from "../../formats/block.js";
import { onSideStream } from "../../ops/side-stream.js";
import { QuantizedTensor } from "../../tensor/quantized.js";
import { asMatrix, byteLength, type Shape, type WideDType } from "../../tensor/shape.js";
import { Tensor, VIEW_ALIGNMENT, viewOrSlice } from "../../tensor/tensor.js";

type WideTensor = Tensor<WideDType>;

/** An operand of a product. */
export type Operand = WideTensor | QuantizedTensor;

/** Computes the product of these rows. It writes to `out` if that is set, else it returns a new tensor. */
export type Product = (rows: Operand, out?: WideTensor) => WideTensor;

/** The shape and dtype of a product's result. */
export interface ResultSpec {
  readonly shape: Shape;
  readonly dtype: WideDType;
}

/** Returns the spec of the product of x, which has `shape` [..., K], and a matrix [K, columns]. */
export function resultSpec(shape: Shape, columns: number, dtype: WideDType): ResultSpec {
  return { shape: [...shape.slice(0, -1), columns], dtype };
}

/** The rows `range` of every rank's part, concatenated in order of ranks. */
export interface GatheredChunk<T = Operand> {
  readonly range: RowRange;
  readonly rows: T;
}

/** All rows of an operand, at once or in chunks. Later chunks may still be in flight on the side stream. */
export type Rows = Operand | readonly GatheredChunk[];

export function isChunked(rows: Rows): rows is readonly GatheredChunk[] {
  return Array.isArray(rows);
}

/** The number of chunks of rows. Four chunks were slower on four H200 (docs/distributed.md). */
const CHUNKS = 2;

/** The minimum number of rows of a rank that are divided into chunks by default. With 8192 rows it was measured to be faster. */
const MIN_ROWS_TO_CHUNK = 8192;

/** Decides whether rows are divided into chunks. */
export interface ChunkLimits {
  /** The number of rows of a chunk must be a multiple of this. */
  readonly multiple: number;
  /** The product of the rows. */
  readonly result: ResultSpec;
  /** The option `overlap` of `ParallelOptions`. */
  readonly overlap: boolean | undefined;
  /** Whether the default was measured for this kind of operand. Otherwise it is one chunk. */
  readonly isMeasured: boolean;
}

/**
 * Returns the number of chunks into which `rows` rows are divided. It is 1 if a chunk would not consist of complete blocks, or if
 * its part of the result could not be a view.
 */
export function chunksFor(rows: number, { multiple, result, overlap, isMeasured }: ChunkLimits): number {
  const [, columns] = asMatrix(result.shape);
  const count = rows / CHUNKS;
  const fits = count > 0 && count % multiple === 0 && columns > 0;
  const isAligned = fits && byteLength(result.dtype, [count, columns]) % VIEW_ALIGNMENT === 0;
  return isAligned && (overlap ?? (isMeasured && rows >= MIN_ROWS_TO_CHUNK)) ? CHUNKS : 1;
}

/** Returns the number of rows that share a scale in the rowwise copy. */
export function rowsOfBlock(x: Operand): number {
  return hasBlocks(x) ? tileSize(x.spec.tile)[0] : 1;
}

/** Whether an operand is quantized with a scale for each block. */
export function hasBlocks(x: Operand): x is QuantizedTensor {
  return x instanceof QuantizedTensor && !isTensorWide(x.spec.tile);
}

/** An operand in high precision. If `group` is set, each of its ranks has `local` rows of the operand. */
export class WideRows {
  #chunks: readonly GatheredChunk<WideTensor>[] | undefined;
  #allRows: WideTensor | undefined;

  constructor(
    private readonly group: ProcessGroup | undefined,
    readonly local: WideTensor,
  ) {}

  /** Starts to gather the rows in this number of chunks. With one chunk, or without a group, it returns all rows at once. */
  gatherInChunks(chunks: number): Rows {
    const { group, local } = this;
    if (!group || chunks === 1) return this.allRows();
    const [rows] = asMatrix(local.shape);
    const gatheredChunks = chunksOf(rows, chunks).map((range) => {
      const gather = (): WideTensor => {
        using part = sliceRowsOf(local, range) as WideTensor;
        return group.allGather(part);
      };
      return { range, rows: onSideStream(local.backend, gather) };
    });
    this.#chunks = gatheredChunks;
    return gatheredChunks;
  }

  /** Returns all rows: `local`, or a new tensor if rows were gathered. */
  allRows(): WideTensor {
    const { group, local } = this;
    if (!group) return local;
    this.#allRows ??= this.#chunks ? this.#assemble(this.#chunks, group.size) : group.allGather(local);
    return this.#allRows;
  }

  #assemble(chunks: readonly GatheredChunk<WideTensor>[], ranks: number): WideTensor {
    const [first = 0, ...rest] = this.local.shape;
    const allRows = assembleRows(chunks, ranks).reshape([first * ranks, ...rest]) as WideTensor;
    for (const { rows } of chunks) rows.dispose();
    return allRows;
  }
}

/** Returns the number of rows of each rank's part. */
function rowsPerRank(chunks: readonly GatheredChunk<unknown>[]): number {
  return chunks.reduce((sum, { range: { count } }) => sum + count, 0);
}

/** Copies the rows of all chunks to one tensor, in order of ranks. */
export function assembleRows(chunks: readonly GatheredChunk<Tensor>[], ranks: number): Tensor {
  const { backend, dtype, shape } = (chunks[0] as GatheredChunk<Tensor>).rows;
  const [, columns] = asMatrix(shape);
  const perRank = rowsPerRank(chunks);
  const out = new Tensor(backend, dtype, [ranks * perRank, columns]);
  for (const { range, rows } of chunks) {
    for (let rank = 0; rank < ranks; rank++) {
      using part = viewOrSlice(rows, rank * range.count * columns, [range.count, columns]);
      out.paste(part, (rank * perRank + range.first) * columns);
    }
  }
  return out;
}

/** Computes the product of all rows. The product of a chunk starts as soon as the chunk is gathered. */
export function computeProduct(rows: Rows, product: Product, { shape, dtype }: ResultSpec): WideTensor {
  if (!isChunked(rows)) return product(rows);
  const [{ rows: firstChunk }] = rows as readonly [GatheredChunk];
  const out = new Tensor(firstChunk.backend, dtype, shape);
  const [allRows, columns] = asMatrix(shape);
  const perRank = rowsPerRank(rows);
  for (const {
    range: { first, count },
    rows: chunk,
  } of rows) {
    for (let rank = 0; rank < allRows / perRank; rank++) {
      using part = sliceRowsOf(chunk, { first: rank * count, count });
      using target = out.view((rank * perRank + first) * columns, [count, columns]);
      product(part, target);
    }
  }
  return out;
}

/**
 * Computes the product of x in chunks and sums each chunk over the ranks while the next is computed. Each rank gets its rows of
 * the sum with `scatters`, else all rows.
 */
export function reducedProduct(
  group: ProcessGroup,
  x: Operand,
  product: Product,
  options: Omit<ReducedRows, "compute">,
): WideTensor {
  const compute = (range: RowRange, out: WideTensor): void => {
    using part = sliceRowsOf(x, range);
    product(part, out);
  };
  const [first = 0, ...rest] = options.shape;
  const resultRows = options.scatters ? first / group.size : first;
  return reduceByChunks(group, { ...options, compute }).reshape([resultRows, ...rest]);
}

/** Returns rows of an operand, as a matrix. */
function sliceRowsOf(x: Operand, range: RowRange): Operand {
  if (x instanceof QuantizedTensor) return rowwiseRowsOf(x, range);
  const [, columns] = asMatrix(x.shape);
  return viewOrSlice(x, range.first * columns, [range.count, columns]);
}
