/**
 * Reductions that overlap the products which compute their inputs. Rows are cut into chunks: on a GPU, one chunk is reduced on
 * the side stream while the next one is computed. Results are bitwise equal to a reduction in one call.
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
  /** Whether each rank gets only its rows of the result. Otherwise each rank gets all rows. */
  readonly scatters: boolean;
  /** Computes some rows of this rank's matrix into `out`. */
  readonly compute: (rows: RowRange, out: Tensor<WideDType>) => void;
}

/** Returns the rows of each of `chunks` equal chunks of `rows` rows. */
export function chunksOf(rows: number, chunks: number): readonly RowRange[] {
  const count = rows / chunks;
  return Array.from({ length: chunks }, (_, i) => ({ first: i * count, count }));
}

/**
 * Reduces a matrix in chunks. Returns the result of `group.reduceScatter` if `scatters` is true, else of `group.allReduce`. For
 * `reduceScatter`, each chunk has the same number of rows for each rank. The result rows of a chunk are a multiple of
 * `VIEW_ALIGNMENT` bytes.
 */
export function reduceByChunks(
  group: ProcessGroup,
  { shape, dtype, chunks, scatters, compute }: ReducedRows,
): Tensor<WideDType> {
  using scope = new Scope();
  const [rows, columns] = asMatrix(shape);
  const { backend } = group;
  const shares = scatters ? group.size : 1;
  const resultRows = rows / shares;
  const out = new Tensor(backend, dtype, [resultRows, columns]);
  for (const { first, count } of chunksOf(resultRows, chunks)) {
    const chunk = new Tensor(backend, dtype, [shares * count, columns]);
    for (let number = 0; number < shares; number++) {
      using part = chunk.view(number * count * columns, [count, columns]);
      compute({ first: number * resultRows + first, count }, part);
    }
    onSideStream(backend, () => {
      const chunkOutput = { out: out.view(first * columns, [count, columns]) };
      if (scatters) group.reduceScatter(chunk, chunkOutput);
      else group.allReduce(chunk, chunkOutput);
      // freed on the side stream: a free on the main stream would make the main stream wait for the reduction
      chunk.dispose();
    });
  }
  return scope.keep(out);
}
