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
  /** Whether each rank gets its rows of the result, not all of them. */
  readonly scatters: boolean;
  /** Computes some rows of this rank's matrix into `out`. */
  readonly make: (rows: RowRange, out: Tensor<WideDType>) => void;
}

/** Returns the rows of each of `chunks` equal chunks of `rows` rows. */
export function chunksOf(rows: number, chunks: number): readonly RowRange[] {
  const count = rows / chunks;
  return Array.from({ length: chunks }, (_, i) => ({ first: i * count, count }));
}

/**
 * Returns what `group.reduceScatter`, if `scatters`, or `group.allReduce` returns for a matrix. A chunk of the first has as many
 * rows for each rank. The rows that a chunk has of a result are a multiple of `VIEW_ALIGNMENT` bytes.
 */
export function reducedByChunks(
  group: ProcessGroup,
  { shape, dtype, chunks, scatters, make }: ReducedRows,
): Tensor<WideDType> {
  using scope = new Scope();
  const [rows, columns] = asMatrix(shape);
  const { backend } = group;
  const parts = scatters ? group.size : 1;
  const own = rows / parts;
  const out = new Tensor(backend, dtype, [own, columns]);
  for (const { first, count } of chunksOf(own, chunks)) {
    const chunk = new Tensor(backend, dtype, [parts * count, columns]);
    for (let number = 0; number < parts; number++) {
      using part = chunk.view(number * count * columns, [count, columns]);
      make({ first: number * own + first, count }, part);
    }
    onSideStream(backend, () => {
      const into = { out: out.view(first * columns, [count, columns]) };
      if (scatters) group.reduceScatter(chunk, into);
      else group.allReduce(chunk, into);
      // if it were freed outside of this call, the main stream would wait for the reduction
      chunk.dispose();
    });
  }
  return scope.keep(out);
}
