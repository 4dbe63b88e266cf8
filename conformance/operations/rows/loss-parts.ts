/** The steps of a cross-entropy whose classes are divided among ranks. */
import * as fc from "fast-check";
import { lossMaximum, lossOfSums, lossSums } from "../../../src/ops/rows/loss-parts.js";
import { laneShape, wideTensor } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/loss-parts.js";
import { download, PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Operation, PlainInputs } from "../operation.js";
import { crossEntropyCase, LOGIT_EDGES } from "./loss.js";

export type LossMaximumCase = PlainInputs<"lossMaximum", "maximum">;

export interface LossSumsCase extends LossMaximumCase {
  /** One per row. */
  readonly targets: PlainTensor<"i32">;
  readonly maximum: PlainTensor<"f32">;
  readonly first: number;
  readonly smoothing: number;
}

export interface LossOfSumsCase {
  /** [2, rows], or [3, rows] if smoothing is not 0 in f32. */
  readonly sums: PlainTensor<"f32">;
  readonly targets: PlainTensor<"i32">;
  readonly classes: number;
  readonly smoothing: number;
  readonly ignore: number;
}

export const lossMaximumOperation: Operation<LossMaximumCase> = {
  arbitrary: laneShape().chain((shape) => fc.record({ logits: wideTensor(shape, { edges: LOGIT_EDGES }) })),
  run: (backend, { logits }) => ({ maximum: download(lossMaximum(upload(backend, logits))) }),
  oracle({ logits }) {
    const rows = rowsOf(logits).map(oracle.maximumOf);
    return { maximum: rounded("f32", [rows.length], rows) };
  },
};

/** The maxima include other ranks' logits, so they may be larger than these logits' maxima. */
export const lossSumsOperation: Operation<LossSumsCase> = {
  arbitrary: fc
    .tuple(crossEntropyCase, fc.constantFrom(0, 1, 40, 2 ** 31 - 9), fc.constantFrom(0, 0, 3, Infinity))
    .map(([{ logits, targets, smoothing }, first, more]) => {
      const tops = rowsOf(logits).map((row) => Math.fround(oracle.maximumOf(row) + more));
      // targets are drawn among the first columns; a quarter of them is not shifted to this part
      const classes = [...targets.data].map((target, i) => (target >= 0 && i % 4 ? target + first : target));
      return {
        ...{ logits, first, smoothing },
        targets: new PlainTensor("i32", targets.shape, Int32Array.from(classes)),
        maximum: rounded("f32", [tops.length], tops),
      };
    }),
  run: (backend, { logits, targets, maximum, first, smoothing }) => {
    const [x, labels] = [upload(backend, logits), upload(backend, targets)];
    const terms = { logits: x, targets: labels, maximum: upload(backend, maximum) };
    return { sums: download(lossSums(terms, { first, smoothing })) };
  },
  oracle({ logits, targets, maximum, first, smoothing }) {
    const tops = wideValues(maximum);
    const rows = rowsOf(logits).map((row, i) =>
      oracle.sumsOf(row, { target: targets.data[i] as number, first, maximum: tops[i] as number }),
    );
    const sums = ([0, 1, 2] as const).slice(0, Math.fround(smoothing) === 0 ? 2 : 3);
    return {
      sums: rounded(
        "f32",
        [sums.length, rows.length],
        sums.flatMap((at) => rows.map((row) => row[at])),
      ),
    };
  },
};

export const lossOfSumsOperation: Operation<LossOfSumsCase> = {
  arbitrary: crossEntropyCase.chain(({ targets, smoothing, ignore, logits }) => {
    const rows = targets.data.length;
    const classes = logits.matrix[1];
    const count = Math.fround(smoothing) === 0 ? 2 : 3;
    return wideTensor([count, rows], { dtype: "f32", edges: [0, 1, 1000] }).map((sums) => ({
      ...{ targets, smoothing, ignore, classes },
      sums: sums as PlainTensor<"f32">,
    }));
  }),
  run: (backend, { sums, targets, ...options }) => ({
    loss: download(lossOfSums(upload(backend, sums), upload(backend, targets), options)),
  }),
  oracle({ sums, targets, ...options }) {
    const values = rowsOf(sums);
    const losses = [...targets.data].map((target, i) =>
      oracle.lossOfSums(
        values.map((each) => each[i] as number),
        target,
        options,
      ),
    );
    return { loss: rounded("f32", [losses.length], losses) };
  },
};
