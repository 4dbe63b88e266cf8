import { beforeAll, describe, expect, test } from "vitest";
import { DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor, zeros } from "../../../src/ops/create.js";
import {
  type CrossEntropyBackwardOptions,
  crossEntropyBackward,
  mse,
  mseBackward,
} from "../../../src/ops/rows/loss.js";
import * as wide from "../../oracle/core/wide.js";
import { crossEntropy } from "../../oracle/rows/loss.js";
import { evenF32, SPECIALS, WIDE_TYPES } from "../../values/samples.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testInScope, useBackend } from "../harness/suite.js";

const IGNORE = -100;
let stems: Stems;
beforeAll(async () => {
  stems = await openStems();
});

interface Run {
  readonly loss: number[];
  readonly maximum: number[];
  readonly total: number[];
  readonly dx: number[];
}

function run(
  type: number,
  rows: readonly number[][],
  targets: readonly number[],
  smoothing: number,
  grad: number[],
): Run {
  const columns = rows[0]!.length;
  stems.reset();
  const scratch = stems.allocate(1 << 14);
  const logits = stems.putWide(type, rows.flat());
  const classes = stems.put(Int32Array.from(targets));
  const upstream = stems.putWide(0, grad);
  const [loss, maximum, total] = [
    stems.allocate(4 * rows.length),
    stems.allocate(4 * rows.length),
    stems.allocate(4 * rows.length),
  ];
  const dx = stems.allocate(4 * rows.length * columns);
  for (const [begin, end] of [
    [1, rows.length],
    [0, 1],
  ] as const) {
    const range = { scratch, begin, end };
    const source = { logits, logitsType: type, columns, targets: classes };
    const rule = { maximum, total, smoothing, ignore: IGNORE };
    stems.run("crossEntropy", { ...source, ...rule, loss }, range);
    const gradient = { grad: upstream, dx, dxType: type, first: 0, classes: columns };
    stems.run("crossEntropyBackward", { ...source, ...rule, ...gradient }, range);
  }
  return {
    loss: stems.getWide(0, loss, rows.length),
    maximum: stems.getWide(0, maximum, rows.length),
    total: stems.getWide(0, total, rows.length),
    dx: stems.getWide(type, dx, rows.length * columns),
  };
}

test.each(WIDE_TYPES)("$name logits: every row has the bits of its definition", ({ type, round }) => {
  for (const columns of [1, 2, 31, 33, 512, 1300]) {
    for (const smoothing of [0, 0.1, 1]) {
      const x = evenF32(6 * columns, 20, columns).map(round);
      const rows = Array.from({ length: 6 }, (_, i) => x.slice(i * columns, (i + 1) * columns));
      SPECIALS.forEach((special, i) => {
        if (i < columns) rows[5]![i] = round(special);
      });
      const targets = [0, columns - 1, IGNORE, columns, columns >> 1, -1];
      const grad = evenF32(6, 1, 3);
      const actual = run(type, rows, targets, smoothing, grad);
      const expected = rows.map((row, i) => crossEntropy(row, targets[i]!, { smoothing, ignore: IGNORE }));
      expect(actual.maximum).toEqual(expected.map((loss) => loss.maximum));
      expect(actual.total).toEqual(expected.map((loss) => loss.total));
      expect(actual.loss).toEqual(expected.map((loss) => loss.loss));
      expect(actual.dx).toEqual(expected.flatMap((loss, i) => loss.dx(grad[i]!)).map(round));
    }
  }
});

test("rows of one class, of -infinity and of infinity have the bits of the definition", () => {
  const inf = Number.POSITIVE_INFINITY;
  const rows = [
    [3, 3],
    [-inf, 0],
    [-inf, -inf],
    [inf, 0],
    [-0, -0],
  ];
  const { loss, maximum, dx } = run(0, rows, [0, 1, 0, 0, 1], 0, [1, 1, 1, 1, 1]);
  expect(loss).toEqual([Math.fround(Math.LN2), 0, Number.NaN, Number.NaN, Math.fround(Math.LN2)]);
  expect(maximum).toEqual([3, 0, -inf, inf, 0]);
  expect(dx.slice(0, 4)).toEqual([-0.5, 0.5, 0, 0]);
});

test("the loss lies within 2^-20 of the true one, relative to the spread of the logits", () => {
  const row = evenF32(1000, 8);
  const { loss } = run(0, [row, row], [17, 999], 0, [1, 1]);
  const sum = row.reduce((total, x) => total + wide.exp(wide.real(x)), 0n);
  for (const [i, target] of [17, 999].entries()) {
    const truth = wide.log(sum) - wide.real(row[target]!);
    expect(Math.abs(loss[i]! - Number(truth >> 192n) / 2 ** 64)).toBeLessThan(16 * 2 ** -20);
  }
});

describe("the mean squared error", () => {
  const backend = useBackend();

  testInScope("is exact for small integers, and so is its gradient", () => {
    const x = tensor(backend(), [1, 2, 3, 4, -1, 0], [2, 3]);
    const target = tensor(backend(), [1, 4, 0, 4, -1, 6], [2, 3]);
    const grad = tensor(backend(), [1, 0.5]);
    expect([...mse(x, target).loss.dataSync()]).toEqual([Math.fround(13 / 3), 12]);
    const share = Math.fround(2 / 3);
    const dx = [0, -2 * share, Math.fround(3 * share), 0, 0, -3 * share];
    expect([...mseBackward({ grad, x, target }).dataSync()]).toEqual(dx.map(Math.fround));
  });

  testInScope("is NaN or infinite where a row is, and NaN without columns", () => {
    const x = tensor(backend(), [Number.NaN, 0, 2 ** 64, 0, 1 / 0, 0], [3, 2]);
    const target = zeros(backend(), "bf16", [3, 2]);
    expect([...mse(x, target).loss.dataSync()]).toEqual([Number.NaN, 1 / 0, 1 / 0]);
    const emptyTensor = zeros(backend(), "f32", [2, 0]);
    expect([...mse(emptyTensor, emptyTensor).loss.dataSync()]).toEqual([Number.NaN, Number.NaN]);
  });

  testInScope("rounds the gradient to the type of x", () => {
    const x = empty(backend(), "f16", [1, 1]).write(Uint16Array.of(0x3c00));
    const target = tensor(backend(), [0], [1, 1]);
    const dx = mseBackward({ grad: tensor(backend(), [1 + 2 ** -11]), x, target });
    expect([dx.dtype, ...dx.dataSync()]).toEqual(["f16", 0x4000]);
  });

  testInScope("refuses operands that do not fit", () => {
    const x = tensor(backend(), [1, 2], [1, 2]);
    const grad = tensor(backend(), [1]);
    expect(() => mse(x, tensor(backend(), [1, 2]))).toThrow(ShapeError);
    expect(() => mse(x, empty(backend(), "e4m3", [1, 2]))).toThrow(DTypeError);
    expect(() => mseBackward({ grad: x, x, target: x })).toThrow(ShapeError);
    // @ts-expect-error a gradient of bf16
    expect(() => mseBackward({ grad: empty(backend(), "bf16", [1]), x, target: x })).toThrow(DTypeError);
    expect(mseBackward({ grad, x, target: x }).shape).toEqual([1, 2]);
  });
});

describe("the classes of a gradient of cross-entropy", () => {
  const backend = useBackend();

  testInScope("end at the last column if the option classes is omitted", () => {
    const logits = tensor(backend(), [1, 2, 3, 4, 5, 6], [2, 3]);
    const targets = tensor(backend(), Int32Array.of(4, 5), [2], "i32");
    const makeTensor = (x: number) => tensor(backend(), [x, x]);
    const inputs = { grad: makeTensor(1), logits, targets, maximum: makeTensor(6), total: makeTensor(2) };
    const dx = (options: CrossEntropyBackwardOptions) => [
      ...crossEntropyBackward(inputs, { smoothing: 0.25, ...options }).dataSync(),
    ];
    expect(dx({})).toEqual(dx({ classes: 3 }));
    expect(dx({ first: 4 })).toEqual(dx({ first: 4, classes: 7 }));
    expect(dx({ first: 4 })).not.toEqual(dx({ first: 4, classes: 8 }));
  });
});

const LOSSES = ["crossEntropy", "crossEntropyBackward", "mse", "mseBackward"] as const;
describeLaws(useBackend({ threads: 2 }), LOSSES, { runs: 150, seed: derivedSeed(20) });
