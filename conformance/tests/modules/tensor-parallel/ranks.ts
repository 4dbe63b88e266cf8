/** Helpers for tests of layers that are divided among ranks of one process. */
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import type { DatapathFamily } from "../../../../src/formats/datapath.js";
import type { WideDType } from "../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { GuardedBackend } from "../../../operations/guarded.js";
import { type DivisionModel, rankIndices } from "../../../oracle/training/divided.js";
import { type Matrix, matrix } from "../../../oracle/training/matrix.js";
import { PlainTensor, wideValues } from "../../../values/plain.js";

/**
 * Creates groups of up to `maxRanks` ranks, whose backends all tests of a file share. Fails if a test leaves memory allocated.
 * `timeout` is the time in ms that a rank waits for the others.
 */
export function useRanks(maxRanks: number, datapath: DatapathFamily, timeout = 20_000) {
  const backends: Backend[] = [];
  beforeAll(async () => {
    for (let rank = 0; rank < maxRanks; rank++)
      backends.push(new GuardedBackend(await openBackend("wasm", { threads: 1, datapath })));
  });
  afterEach(() => {
    for (const backend of backends) expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  });
  afterAll(async () => {
    for (const backend of backends.splice(0)) await backend.dispose();
  });
  return (size: number): ProcessGroup[] => loopbackOver(backends.slice(0, size), timeout);
}

/** How a matrix is divided among ranks: not at all, by rows, or by columns. */
export type HeldDimension = "all" | "rows" | "columns";

/** Returns rank `rank`'s part of a matrix. */
export function partOf(
  x: Matrix,
  heldDimension: HeldDimension,
  division: DivisionModel,
  rank: number,
): Matrix {
  const [rows, columns] = x.shape;
  const indicesUpTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
  const [rowIndices, columnIndices] = [
    heldDimension === "rows" ? rankIndices(division, rank, rows) : indicesUpTo(rows),
    heldDimension === "columns" ? rankIndices(division, rank, columns) : indicesUpTo(columns),
  ];
  return matrix(
    [rowIndices.length, columnIndices.length],
    x.dtype,
    (i, j) => x.data[(rowIndices[i] as number) * columns + (columnIndices[j] as number)] as number,
  );
}

/** Reads a tensor after all ranks have contributed to it. */
export async function readPlain(x: Tensor): Promise<PlainTensor> {
  const { dtype, shape } = x;
  return new PlainTensor(dtype, shape, await x.data());
}

/** Reads an f32, bf16 or f16 tensor as a matrix. */
export async function readMatrix(x: Tensor, shape: readonly [number, number]): Promise<Matrix> {
  const plainTensor = (await readPlain(x)) as PlainTensor<WideDType>;
  return { data: wideValues(plainTensor), shape, dtype: plainTensor.dtype };
}
