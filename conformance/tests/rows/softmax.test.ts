/** Softmax and its gradient: the definition for each row, the mask, laws, threads and refusals. */
import { beforeAll, describe, expect, test } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { softmax, softmaxBackward } from "../../../src/ops/rows/softmax.js";
import * as wide from "../../oracle/core/wide.js";
import * as oracle from "../../oracle/rows/softmax.js";
import { download } from "../../values/plain.js";
import { evenF32, SPECIALS, WIDE_TYPES } from "../../values/samples.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

let stems: Stems;
beforeAll(async () => {
  stems = await openStems();
});

const backend = useBackend();
const ROWS = 6;
const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

/** Forward and backward of six rows (two matrices of three), computed in two parts. */
function run(type: number, x: readonly number[], grad: readonly number[], period: number, scale: number) {
  const columns = x.length / ROWS;
  stems.reset();
  const scratch = stems.allocate(1 << 19);
  const [inputAddress, gradient] = [stems.putWide(type, x), stems.putWide(type, grad)];
  const [out, dx] = [stems.allocate(4 * x.length), stems.allocate(4 * x.length)];
  for (const [begin, end] of [
    [1, ROWS],
    [0, 1],
  ] as const) {
    const rule = { columns, period, scale };
    const range = { scratch, begin, end };
    stems.run("softmax", { x: inputAddress, type, out, outType: type, ...rule }, range);
    const tensors = { grad: gradient, gradType: type, y: out, yType: type, dx, dxType: type };
    stems.run("softmaxBackward", { ...tensors, ...rule }, range);
  }
  return { out: stems.getWide(type, out, x.length), dx: stems.getWide(type, dx, x.length) };
}

test.each(WIDE_TYPES)("$name: every row has the bits of its definition", ({ type, round }) => {
  for (const columns of [1, 2, 31, 33, 512, 1300]) {
    for (const period of [0, 3]) {
      const scale = Math.fround(columns % 2 === 0 ? 1 : 0.3);
      const [x, grad] = [evenF32(ROWS * columns, 20, columns), evenF32(ROWS * columns, 1, 3)].map((data) =>
        data.map(round),
      ) as [number[], number[]];
      SPECIALS.slice(0, columns).forEach((special, i) => {
        x[5 * columns + i] = round(special);
        grad[4 * columns + columns - 1 - i] = round(special);
      });
      const actual = run(type, x, grad, period, scale);
      for (let row = 0; row < ROWS; row++) {
        const length = oracle.countUnmasked(row % 3, [3, columns], period > 0);
        const rowOf = (values: readonly number[]) => values.slice(row * columns, (row + 1) * columns);
        const shares = oracle.softmax(rowOf(x), length, scale).map(round);
        expect(rowOf(actual.out)).toEqual(shares);
        expect(rowOf(actual.dx)).toEqual(
          oracle.softmaxBackward(rowOf(grad), shares, length, scale).map(round),
        );
      }
    }
  }
});

test("rows longer than the kernel's buffer have the bits of the definition", () => {
  const columns = 2 ** 16 + 700;
  const row = evenF32(columns, 30, 9);
  const { out } = run(0, Array.from({ length: ROWS }, () => row).flat(), evenF32(ROWS * columns, 1), 0, 0.5);
  const expected = oracle.softmax(row, columns, 0.5);
  for (const i of [0, 1, 5])
    expect(Buffer.compare(bytes(out.slice(i * columns, (i + 1) * columns)), bytes(expected))).toBe(0);
});

function bytes(values: readonly number[]): Uint8Array {
  return new Uint8Array(Float32Array.from(values).buffer);
}

describe("a row", () => {
  const rowOf = (values: number[], options = {}) => [
    ...softmax(tensor(backend(), values), options).dataSync(),
  ];

  testInScope("of one value is 1, and of n equal values 1/n", () => {
    expect(rowOf([-7])).toEqual([1]);
    expect(rowOf([3, 3, 3, 3])).toEqual([0.25, 0.25, 0.25, 0.25]);
    expect(rowOf([1e30, -1e30], { scale: 0 })).toEqual([0.5, 0.5]);
  });

  testInScope("with -infinity has 0 there; with NaN, +infinity or nothing but -infinity it is NaN", () => {
    expect(rowOf([-inf, 2, 2])).toEqual([0, 0.5, 0.5]);
    for (const values of [
      [nan, 1],
      [inf, 1],
      [-inf, -inf],
    ])
      expect(rowOf(values)).toEqual([nan, nan]);
    expect(rowOf([2 ** 127, 0], { scale: 4 })).toEqual([nan, nan]);
  });

  test("lies within 2^-20 of the true one", () => {
    const row = evenF32(100, 8);
    const powers = row.map((x) => wide.exp(wide.real(x)));
    const total = powers.reduce((sum, power) => sum + power, 0n);
    oracle.softmax(row, 100).forEach((share, i) => {
      const truth = Number((powers[i]! << 64n) / total) / 2 ** 64;
      expect(Math.abs(share / truth - 1)).toBeLessThan(2 ** -20);
    });
  });
});

describe("the causal mask", () => {
  const oneThird = Math.fround(1 / 3);

  testInScope("lets row i see element j up to i + (C - R), in each matrix anew", () => {
    const softmaxOf = (shape: number[]) => [
      ...softmax(tensor(backend(), new Float32Array(shape.reduce((a, b) => a * b)), shape), {
        causal: true,
      }).dataSync(),
    ];
    expect(softmaxOf([2, 2])).toEqual([1, 0, 0.5, 0.5]);
    expect(softmaxOf([2, 2, 2])).toEqual([1, 0, 0.5, 0.5, 1, 0, 0.5, 0.5]);
    expect(softmaxOf([2, 3])).toEqual([0.5, 0.5, 0, oneThird, oneThird, oneThird]);
    expect(softmaxOf([3, 2])).toEqual([0, 0, 1, 0, 0.5, 0.5]);
    expect(softmaxOf([3])).toEqual([oneThird, oneThird, oneThird]);
  });

  testInScope("ignores masked values, forward and backward", () => {
    const x = tensor(backend(), [1, nan, 3, 3], [2, 2]);
    const y = softmax(x, { causal: true });
    expect([...y.dataSync()]).toEqual([1, 0, 0.5, 0.5]);
    const [grad, garbage] = [
      tensor(backend(), [5, inf, 3, 1], [2, 2]),
      tensor(backend(), [1, nan, 0.5, 0.5], [2, 2]),
    ];
    for (const shares of [y, garbage]) {
      const dx = softmaxBackward(grad, shares, { causal: true, scale: 2 });
      expect([...dx.dataSync()]).toEqual([0, 0, 1, -1]);
    }
  });

  testInScope("gives zeros in fully masked rows, whatever the memory contained", () => {
    const x = tensor(backend(), new Float32Array(8).fill(nan), [4, 2]);
    const y = softmax(x, { causal: true, outDtype: "bf16" });
    expect([...y.dataSync()].slice(0, 4)).toEqual([0, 0, 0, 0]);
    expect([...softmaxBackward(x, x, { causal: true }).dataSync()].slice(0, 4)).toEqual([0, 0, 0, 0]);
  });
});

testInScope(
  "results have the requested type, by default the input's; empty inputs give empty results",
  () => {
    const [x, grad] = [empty(backend(), "bf16", [0, 4]), empty(backend(), "f16", [0, 4])];
    expect([softmax(x).dtype, softmaxBackward(grad, x).dtype]).toEqual(["bf16", "f16"]);
    expect([
      softmax(x, { outDtype: "f32" }).dtype,
      softmaxBackward(grad, x, { outDtype: "f32" }).dtype,
    ]).toEqual(["f32", "f32"]);
    expect(softmax(empty(backend(), "f32", [3, 0]), { causal: true }).shape).toEqual([3, 0]);
  },
);

testInScope("a scale that is not a finite f32, other types and other shapes are refused", () => {
  const [x, codes] = [tensor(backend(), [1, 2]), empty(backend(), "e4m3", [2])];
  for (const scale of [nan, inf, 1e39]) {
    expect(() => softmax(x, { scale })).toThrow(ArgumentError);
    expect(() => softmaxBackward(x, x, { scale })).toThrow(ArgumentError);
  }
  expect(() => softmax(codes)).toThrow(DTypeError);
  expect(() => softmaxBackward(x, codes)).toThrow(DTypeError);
  expect(() => softmaxBackward(tensor(backend(), [1, 2], [1, 2]), x)).toThrow(ShapeError);
});

testEqualBits("threads do not change a bit", useThreads(), (backend) => {
  const wave = (seed: number) =>
    tensor(
      backend,
      Float32Array.from({ length: 3 * 200 * 170 }, (_, i) => ((i * seed) % 1013) / 100),
      [3, 200, 170],
    );
  const y = softmax(wave(7), { causal: true, scale: 0.5 });
  return { y: download(y), dx: download(softmaxBackward(wave(11), y, { causal: true, scale: 0.5 })) };
});

describeLaws(useBackend({ threads: 2 }), ["softmax", "softmaxBackward"], {
  runs: 150,
  seed: derivedSeed(33),
});
