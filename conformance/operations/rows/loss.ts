/** Losses, forward and backward. */
import * as fc from "fast-check";
import { crossEntropy, crossEntropyBackward, mse, mseBackward } from "../../../src/ops/rows/loss.js";
import { asMatrix } from "../../../src/tensor/shape.js";
import { laneShape, wideTensor } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/loss.js";
import { download, PlainTensor, upload, wideValues } from "../../values/plain.js";
import { mapRows, rounded, rowsOf } from "../../values/rounded.js";
import type { Operation, PlainInputs } from "../operation.js";

export type CrossEntropyCase = PlainInputs<"crossEntropy", "loss" | "maximum" | "total">;

/** The statistics are the ones that the forward pass saved. */
export interface CrossEntropyBackwardCase extends CrossEntropyCase {
  /** One per row. */
  readonly grad: PlainTensor<"f32">;
  readonly maximum: PlainTensor<"f32">;
  readonly total: PlainTensor<"f32">;
  /** The class of the first column, and the number of all classes. Default: 0, and the logits' columns. */
  readonly first?: number;
  readonly classes?: number;
}

const LOWEST = -(2 ** 31);
/** Exponents where e^x underflows or overflows. */
export const LOGIT_EDGES = [0, 2 ** -24, 16.6, 87.3, 88.723, 103.97, 104];

/** Logits, and a target for each row. */
export const crossEntropyCase: fc.Arbitrary<CrossEntropyCase> = laneShape().chain((shape) => {
  const [rows, classes] = asMatrix(shape);
  return fc
    .record({
      logits: wideTensor(shape, { edges: LOGIT_EDGES }),
      smoothing: fc.constantFrom(0, 0.1, 1, 0.5, 2 ** -149, 1e-60),
      ignore: fc.constantFrom(-100, 0, -1, LOWEST),
      targets: fc.array(
        fc.oneof(
          { weight: 5, arbitrary: fc.nat({ max: Math.max(classes - 1, 0) }) },
          fc.constantFrom(-100, -1, 0, classes, classes + 1, LOWEST, 2 ** 31 - 1),
        ),
        { minLength: rows, maxLength: rows },
      ),
    })
    .map(({ targets, ...rest }) => ({
      ...rest,
      targets: new PlainTensor("i32", [rows], Int32Array.from(targets)),
    }));
});

function rowLosses({ logits, targets, ...options }: CrossEntropyCase): oracle.CrossEntropy[] {
  return rowsOf(logits).map((row, i) => oracle.crossEntropy(row, targets.data[i] as number, options));
}

/** The results of the forward pass. */
function forward(input: CrossEntropyCase) {
  const rows = rowLosses(input);
  const valuesOfRows = (pick: (row: oracle.CrossEntropy) => number): PlainTensor<"f32"> =>
    rounded("f32", [rows.length], rows.map(pick));
  return {
    loss: valuesOfRows(({ loss }) => loss),
    maximum: valuesOfRows(({ maximum }) => maximum),
    total: valuesOfRows(({ total }) => total),
  };
}

export const crossEntropyOperation: Operation<CrossEntropyCase> = {
  arbitrary: crossEntropyCase,
  run(backend, { logits, targets, ...options }) {
    const losses = crossEntropy(upload(backend, logits), upload(backend, targets), options);
    return { loss: download(losses.loss), maximum: download(losses.maximum), total: download(losses.total) };
  },
  oracle: forward,
};

/** With a part of the columns, the statistics are computed from this part only. */
export const crossEntropyBackwardOperation: Operation<CrossEntropyBackwardCase> = {
  arbitrary: fc
    .tuple(crossEntropyCase, fc.constantFrom(0, 0, 1, 40, 2 ** 31 - 2000), fc.constantFrom(0, 0, 1, 50))
    .chain(([input, first, classesAfter]) =>
      wideTensor([input.targets.data.length], { dtype: "f32" }).map((grad) => {
        const { maximum, total } = forward(input);
        const classes = first + input.logits.matrix[1] + classesAfter;
        // targets are drawn among the first columns; a quarter of them is not shifted to this part
        const drawn = [...input.targets.data].map((target, i) =>
          target >= 0 && target < classes && i % 4 ? target + first : target,
        );
        const targets = new PlainTensor("i32", input.targets.shape, Int32Array.from(drawn));
        return { ...input, targets, grad: grad as PlainTensor<"f32">, maximum, total, first, classes };
      }),
    ),
  run(backend, { smoothing, ignore, first, classes, ...tensors }) {
    const { grad, logits, targets, maximum, total } = tensors;
    const inputs = {
      grad: upload(backend, grad),
      logits: upload(backend, logits),
      targets: upload(backend, targets),
      maximum: upload(backend, maximum),
      total: upload(backend, total),
    };
    return { dx: download(crossEntropyBackward(inputs, { smoothing, ignore, first, classes })) };
  },
  oracle({ grad, logits, targets, maximum, total, first = 0, ...options }) {
    const [upstream, tops, totals] = [wideValues(grad), wideValues(maximum), wideValues(total)];
    const { classes = first + logits.matrix[1] } = options;
    const dx = mapRows(logits, logits.dtype, (row, i) => {
      const target = targets.data[i] as number;
      if (target === options.ignore) return row.map(() => 0);
      if (target < 0 || target >= classes) return row.map(() => Number.NaN);
      const shifted = row.map((x) => Math.fround(x - (tops[i] as number)));
      const where = { total: totals[i] as number, target: target - first, classes };
      const gradient = oracle.computeGradient(shifted, where, Math.fround(options.smoothing));
      return gradient.map((x) => Math.fround(x * (upstream[i] as number)));
    });
    return { dx };
  },
};

export type MseCase = PlainInputs<"mse", "loss">;

export type MseBackwardCase = PlainInputs<"mseBackward", "dx">;

const errors: fc.Arbitrary<MseCase> = laneShape().chain((shape) =>
  fc.record({ x: wideTensor(shape), target: wideTensor(shape) }),
);

function squaredErrors({ x, target }: MseCase): oracle.SquaredError[] {
  const targets = rowsOf(target);
  return rowsOf(x).map((row, i) => oracle.mse(row, targets[i] as number[]));
}

export const mseOperation: Operation<MseCase> = {
  arbitrary: errors,
  run: (backend, { x, target }) => ({
    loss: download(mse(upload(backend, x), upload(backend, target)).loss),
  }),
  oracle(input) {
    const rows = squaredErrors(input).map(({ loss }) => loss);
    return { loss: rounded("f32", [rows.length], rows) };
  },
};

export const mseBackwardOperation: Operation<MseBackwardCase> = {
  arbitrary: errors.chain((input) =>
    wideTensor([input.x.matrix[0]], { dtype: "f32" }).map((grad) => ({ ...input, grad })),
  ),
  run(backend, { grad, x, target }) {
    const inputs = { grad: upload(backend, grad), x: upload(backend, x), target: upload(backend, target) };
    return { dx: download(mseBackward(inputs)) };
  },
  oracle({ grad, ...input }) {
    const upstream = wideValues(grad);
    const dx = squaredErrors(input).flatMap((row, i) => row.dx(upstream[i] as number));
    return { dx: rounded(input.x.dtype, input.x.shape, dx) };
  },
};
