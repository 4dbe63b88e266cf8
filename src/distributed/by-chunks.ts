/**
 * Reductions that run beside the products which compute what is reduced. Rows are cut into chunks: on a GPU, one chunk is reduced
 * on the side stream while the next one is computed. Results have the bits of the uncut reduction.
 */
import { onSideStream } from "../ops/side-stream.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix, type Shape, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import type { ProcessGroup } from "./group.js";

/** Rows of a matrix: `count` rows from row `first` on. */
export interface RowRange {
  readonly first: number;
  readonly count: number;
}

/** A matrix [rows, columns] of each rank that is reduced over the ranks. */
export interface ReducedRows {
  readonly shape: Shape;
  readonly dtype: WideDType;
  readonly chunks: number;
  /** Computes some rows of this rank's matrix into `out`. */
  readonly make: (rows: RowRange, out: Tensor<WideDType>) => void;
}

/** Returns the rows of each of `chunks` equal chunks of `rows` rows. */
export function chunksOf(rows: number, chunks: number): readonly RowRange[] {
  const count = rows / chunks;
  return Array.from({ length: chunks }, (_, i) => ({ first: i * count, count }));
}

/**
 * Returns what `group.reduceScatter` returns for a matrix. A chunk has as many rows for each rank; their number of bytes is a
 * multiple of `VIEW_ALIGNMENT`.
 */
export function reduceScatterByChunks(
  group: ProcessGroup,
  { shape, dtype, chunks, make }: ReducedRows,
): Tensor<WideDType> {
  using scope = new Scope();
  const [rows, columns] = asMatrix(shape);
  const { backend, size, ranks } = group;
  const own = rows / size;
  const out = new Tensor(backend, dtype, [own, columns]);
  for (const { first, count } of chunksOf(own, chunks)) {
    const chunk = new Tensor(backend, dtype, [size * count, columns]);
    for (const rank of ranks.keys()) {
      using part = chunk.view(rank * count * columns, [count, columns]);
      make({ first: rank * own + first, count }, part);
    }
    onSideStream(backend, () => {
      group.reduceScatter(chunk, { out: out.view(first * columns, [count, columns]) });
      // if it were freed outside of this call, the main stream would wait for the reduction
      chunk.dispose();
    });
  }
  return scope.keep(out);
}

/** Returns what `group.allReduce` returns for a matrix. A chunk's number of bytes is a multiple of `VIEW_ALIGNMENT`. */
export function allReduceByChunks(
  group: ProcessGroup,
  { shape, dtype, chunks, make }: ReducedRows,
): Tensor<WideDType> {
  using scope = new Scope();
  const [rows, columns] = asMatrix(shape);
  const { backend } = group;
  const out = new Tensor(backend, dtype, [rows, columns]);
  for (const { first, count } of chunksOf(rows, chunks)) {
    const chunk = new Tensor(backend, dtype, [count, columns]);
    make({ first, count }, chunk);
    onSideStream(backend, () => {
      group.allReduce(chunk, { out: out.view(first * columns, [count, columns]) });
      chunk.dispose();
    });
  }
  return scope.keep(out);
}
