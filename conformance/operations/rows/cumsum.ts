/** Cumulative sums of rows. */
import * as fc from "fast-check";
import { cumsum } from "../../../src/ops/rows/cumsum.js";
import { laneShape, wideTensor } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/cumsum.js";
import { download, upload } from "../../values/plain.js";
import { mapRows } from "../../values/rounded.js";
import type { Operation, PlainInputs } from "../operation.js";

export type CumsumCase = PlainInputs<"cumsum">;

export const cumsumOperation: Operation<CumsumCase> = {
  arbitrary: laneShape().chain((shape) => fc.record({ x: wideTensor(shape), reverse: fc.boolean() })),
  run: (backend, { x, reverse }) => ({ out: download(cumsum(upload(backend, x), -1, { reverse })) }),
  oracle: ({ x, reverse }) => ({ out: mapRows(x, x.dtype, (row) => oracle.cumsum(row, reverse)) }),
};
