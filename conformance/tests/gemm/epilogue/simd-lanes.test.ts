/**
 * An element of a product does not depend on the number of neighbouring elements: the epilogue computes four at a time if it can.
 * A tensor scale next to row scales acts as this scale for each row.
 */
import { describe, expect, it } from "vitest";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { useBackend } from "../../harness/suite.js";

const DEPTH = 16;
/** Factors of sums of ones: numbers of either sign, exact zeros, one that underflows, infinities and NaN. */
const ROWS = [
  1,
  -1,
  0,
  -0,
  2 ** -126,
  -(2 ** -126),
  3,
  Number.POSITIVE_INFINITY,
  Number.NaN,
  -3,
  2 ** 127,
  -0.3,
];
const ALPHAS = [0, -0, 1, -2, 2 ** -100, 2 ** -149];
const bitsOf = (x: Tensor): readonly number[] =>
  Array.from(new Uint32Array((x.dataSync() as Float32Array).slice().buffer)).map((word) =>
    (word & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : word,
  );

describe.each(["exact", "fp32", "hopper"] as const)("on the datapath %s", (datapath) => {
  const backend = useBackend({ threads: 1, datapath });
  const dtype = datapath === "fp32" ? "f32" : "bf16";
  const upper = (value: number): number => new Uint32Array(Float32Array.of(value).buffer)[0] ?? 0;
  const matrix = (values: readonly number[], rows: number): Tensor =>
    tensor(
      backend(),
      dtype === "f32" ? Float32Array.from(values) : Uint16Array.from(values, (value) => upper(value) >>> 16),
      [rows, DEPTH],
      dtype,
    );
  const lines = (values: readonly number[]): Tensor =>
    matrix(
      values.flatMap((value) => Array.from({ length: DEPTH }, (_, k) => (k === 0 ? value : 0))),
      values.length,
    );

  it.each(ALPHAS)("alpha %s", (alpha) => {
    using _scope = new Scope();
    const x = lines([1]);
    const product = (w: readonly number[]): readonly number[] =>
      bitsOf(gemm({ x, w: lines(w), alpha, outDtype: "f32" }).out);
    const alone = ROWS.map((value) => product([value])[0]);
    for (let count = 2; count <= ROWS.length; count++)
      expect(product(ROWS.slice(0, count))).toEqual(alone.slice(0, count));
  });
});

describe("scales of rows beside one of a tensor", () => {
  const backend = useBackend({ threads: 1, datapath: "hopper" });
  const [m, n] = [5, 7];
  const codes = (lines: number): Tensor<"e4m3"> => {
    const bytes = Uint8Array.from(
      { length: lines * DEPTH },
      (_, i) => 0x28 + ((i * 37) % 0x30) + (i % 3 ? 0 : 0x80),
    );
    return tensor(backend(), bytes, [lines, DEPTH], "e4m3");
  };
  const rows = (lines: number, scaleOf: (i: number) => number) => ({
    data: codes(lines),
    scaleInv: tensor(
      backend(),
      Float32Array.from({ length: lines }, (_, i) => scaleOf(i)),
      [lines, 1],
    ),
    tile: "1xK" as const,
  });
  const whole = (lines: number, scale: number) => ({
    data: codes(lines),
    scaleInv: tensor(backend(), Float32Array.of(scale), [1]),
    tile: "tensor" as const,
  });
  const ofRow = (i: number): number => Math.fround(0.3 + i / 7);

  it.each(["x", "w"] as const)("%s has one", (name) => {
    using _scope = new Scope();
    const [ofX, ofW] = [rows(m, name === "x" ? () => 0.7 : ofRow), rows(n, name === "w" ? () => 0.7 : ofRow)];
    const expected = bitsOf(gemm({ x: ofX, w: ofW, outDtype: "f32" }).out);
    const given = bitsOf(
      gemm({
        x: name === "x" ? whole(m, 0.7) : ofX,
        w: name === "w" ? whole(n, 0.7) : ofW,
        outDtype: "f32",
      }).out,
    );
    expect(given).toEqual(expected);
  });
});
