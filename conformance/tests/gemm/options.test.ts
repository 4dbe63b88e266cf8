/** The options and results of a product besides its operands: factors, addends, GELU, gradients, the result type. */
import { describe, expect } from "vitest";
import { ArgumentError, DTypeError, ShapeError, UnsupportedError } from "../../../src/errors.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { activation, activationBackward } from "../../../src/ops/elementwise/activation.js";
import { batchedGemm } from "../../../src/ops/gemm/batched.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import type { GemmOptions } from "../../../src/ops/gemm/options.js";
import { transpose } from "../../../src/ops/layout/layout.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { bf16, bitsOf, fromBits, ofNumber } from "../../oracle/core/rational.js";
import { epilogue } from "../../oracle/gemm/gemm.js";
import { cast, codesOfTensor, noise } from "../harness/noise.js";
import { testInScope, useBackend } from "../harness/suite.js";

const one = useBackend();

describe("epilogues", () => {
  const operands = (): { a: Tensor; b: Tensor } => ({
    a: cast(noise(one(), 9, 80, 20), "bf16"),
    b: cast(noise(one(), 7, 80, 21), "bf16"),
  });

  testInScope("alpha, beta and bias are the oracle's steps, rounded once", () => {
    const { a, b } = operands();
    const acc = gemm({ a, b, outDtype: "f32" }).out.dataSync() as Float32Array;
    const [c, bias] = [
      cast(noise(one(), 7, 9, 22), "f16"),
      cast(noise(one(), 1, 9, 23), "bf16").reshape([9]),
    ];
    const values = (t: Tensor): Float32Array => gemmless(t);
    const out = gemm({ a, b, alpha: 0.3, beta: -1.7, c, bias, outDtype: "bf16" }).out;
    const task = { alpha: Math.fround(0.3), scaleA: 1, scaleB: 1, beta: Math.fround(-1.7), split: false };
    const expected = Array.from(acc, (v, i) => {
      const x = epilogue(v, { ...task, c: values(c)[i] as number, bias: values(bias)[i % 9] as number });
      return bitsOf(bf16(ofNumber(x))) >>> 16;
    });
    expect(codesOfTensor(out)).toEqual(expected);
  });

  testInScope(
    "progress is told from 0 to 1, and the product has the same bits, however many jobs it is divided into",
    () => {
      for (const [rows, columns] of [
        [1, 1],
        [9, 130],
        [300, 70],
      ] as const) {
        const pair = {
          a: cast(noise(one(), columns, 80, 20), "bf16"),
          b: cast(noise(one(), rows, 80, 21), "bf16"),
        };
        const told: number[] = [];
        const { out } = gemm({ ...pair, progress: (done) => told.push(done) });
        expect(codesOfTensor(out)).toEqual(codesOfTensor(gemm(pair).out));
        expect(told.at(-1)).toBe(1);
        expect(told).toEqual(told.toSorted((x, y) => x - y));
      }
    },
  );

  testInScope("out may share memory with c or geluInput, and with no other input", () => {
    const square = (seed: number) => cast(noise(one(), 8, 8, seed), "bf16");
    const [a, b] = [square(1), square(2)];
    const apart = (out: Tensor, more: object) => () => gemm({ a, b, out, ...more });
    for (const [name, out] of Object.entries({ a, b })) {
      for (const more of [{}, { biasGradient: true }, { layout: "NN" as const }])
        expect(apart(out, more)).toThrow(new RegExp(`out shares memory with ${name}`));
    }
    const out = square(3);
    expect(apart(out, { bias: out.view(0, [8]) })).toThrow(/shares memory with bias/);
    const both = cast(noise(one(), 48, 8, 4), "bf16");
    const later = both.view(256, [8, 8]);
    expect(apart(both.view(0, [8, 8]), { c: both.view(128, [8, 8]) })).not.toThrow();
    expect(apart(later, { c: both.view(128, [8, 8]) })).not.toThrow();
    expect(apart(both.view(0, [8, 32]).view(0, [8, 8]), { c: both.view(0, [8, 8]) })).not.toThrow();
    expect(apart(later, { c: later })).not.toThrow();
    expect(apart(later, { c: later, beta: 2, bias: later.view(0, [8]) })).toThrow(/shares memory with bias/);
    const wide = new Tensor(one(), "f32", [48, 8]);
    expect(apart(wide.view(0, [8, 8]), { c: cast(noise(one(), 8, 8, 7), "f16") })).not.toThrow();
    expect(apart(later, { geluInput: later })).not.toThrow();
    const quantized = { data: new Tensor(one(), "e4m3", [8, 8]), scaleInv: tensor(one(), [1]) };
    const codes = new Tensor(one(), "e4m3", [8, 8]);
    expect(() => gemm({ a: quantized, b: codes, out: codes })).toThrow(/shares memory with b/);
    const items = cast(noise(one(), 8, 8, 5), "bf16").reshape([1, 8, 8]);
    expect(() => batchedGemm({ a: items, b: cast(items, "bf16").reshape([1, 8, 8]), out: items })).toThrow(
      /batchedGemm: out shares memory with a/,
    );
  });

  testInScope("unknown types, tiles and plans are refused by name", () => {
    const { a, b } = operands();
    const wrong = (given: object, words: RegExp, type: unknown = ArgumentError) => {
      let thrown: unknown;
      try {
        gemm({ a, b, ...given } as GemmOptions);
      } catch (error) {
        thrown = error;
      }
      expect(thrown).toBeInstanceOf(type);
      expect((thrown as Error).message).toMatch(words);
    };
    wrong({ gelu: true, auxDtype: "e4m3" }, /auxDtype "e4m3"/);
    wrong({ a: { data: a, scaleInv: cast(tensor(one(), [1]), "bf16") } }, /scale of a is bf16/, DTypeError);
    wrong({ b: { data: b, scaleInv: tensor(one(), [1]), tile: "1x32" } }, /tile of b "1x32"/);
    for (const plan of ["x", {}, { datapath: 7 }, { datapath: "toString" }])
      wrong({ plan }, /plan's datapath is not one of exact, fp32, hopper-fp8/);
    wrong({ plan: { datapath: "hopper-half", splitAccumulator: "no", splitK: 1 } }, /splitAccumulator/);
    wrong({ plan: { datapath: "hopper-half", splitAccumulator: false } }, /plan's splitK is not a whole/);
    wrong({ plan: { datapath: "hopper-half", splitAccumulator: false, splitK: 0 } }, /plan's splitK is not/);
    for (const splitK of [0, -1, 1.5, Number.NaN, "all"])
      wrong({ splitK }, /splitK is .*; it must be a whole number from 1/);
    wrong({ splitK: 2 ** 32 + 1 }, /it can be at most K/);
    wrong({ geluInput: noise(one(), 9, 7, 1) }, /geluInput is \[9,7\]; it must be \[7,9\]/, ShapeError);
    expect(() => batchedGemm({ a, b, outDtype: "e4m3" as "f32" })).toThrow(/outDtype "e4m3"/);
  });

  testInScope("scales for each 128 go with FP8 elements, on a tensor core", () => {
    const data = cast(noise(one(), 2, 256, 6), "bf16");
    const scaled = { data, scaleInv: tensor(one(), [1, 1, 1, 1], [2, 2]), tile: "1x128" as const };
    expect(() => gemm({ a: scaled, b: scaled, datapath: "hopper" })).toThrow(UnsupportedError);
    expect(gemm({ a: scaled, b: scaled, datapath: "exact" }).out.shape).toEqual([2, 2]);
  });

  testInScope("accumulating adds to out in place", () => {
    const { a, b } = operands();
    const fresh = gemm({ a, b, outDtype: "f32" }).out;
    const out = noise(one(), 7, 9, 24);
    const before = Float32Array.from(out.dataSync());
    expect(gemm({ a, b, out, accumulate: true }).out).toBe(out);
    const sums = Array.from(fresh.dataSync() as Float32Array, (v, i) =>
      bitsOf(Math.fround(v + (before[i] as number))),
    );
    expect(codesOfTensor(out)).toEqual(sums);
  });

  testInScope("an FP8 output is scaled and saturates; its amax is taken before the scale", () => {
    const { a, b } = operands();
    const plain = gemm({ a, b, outDtype: "f32" }).out;
    const { out, amax } = gemm({ a, b, outDtype: "e4m3", outScale: 64 });
    expect(codesOfTensor(out)).toEqual(codesOfTensor(encode(plain, { format: "e4m3", scale: 64 })));
    const largest = Math.max(...Array.from(plain.dataSync() as Float32Array, Math.abs));
    expect(amax?.dataSync()[0]).toBe(largest);
  });

  testInScope("GELU is its own kernel on the rounded argument, its derivative on the f32 product", () => {
    const { a, b } = operands();
    const { out, preGelu } = gemm({ a, b, gelu: true, outDtype: "bf16", auxDtype: "bf16" });
    const product = gemm({ a, b, outDtype: "f32" }).out;
    expect(codesOfTensor(preGelu as Tensor)).toEqual(codesOfTensor(cast(product, "bf16")));
    expect(codesOfTensor(out)).toEqual(codesOfTensor(activation(preGelu as Tensor, { kind: "gelu" })));
    const backward = gemm({
      a,
      b,
      geluInput: preGelu as Tensor<WideDType>,
      outDtype: "f32",
      biasGradient: true,
    });
    const expected = activationBackward(product, preGelu as Tensor, { kind: "gelu" });
    expect(codesOfTensor(backward.out)).toEqual(codesOfTensor(expected));
    expect(codesOfTensor(backward.biasGradient as Tensor)).toEqual(columnSums(expected));
  });

  testInScope("a weight gradient gives the bias gradient: the column sums of b", () => {
    const [x, dy] = [cast(noise(one(), 40, 24, 25), "bf16"), noise(one(), 40, 10, 26)];
    const result = gemm({ a: x, b: cast(dy, "bf16"), layout: "NT", biasGradient: true, outDtype: "f32" });
    expect(result.out.shape).toEqual([10, 24]);
    expect(codesOfTensor(result.biasGradient as Tensor)).toEqual(columnSums(decodeBf16(cast(dy, "bf16"))));
  });

  testInScope("an empty sum is zero without bias, or the tensor to which accumulate adds it", () => {
    const [a, b] = [tensor(one(), [], [3, 0]), tensor(one(), [], [2, 0])];
    const bias = tensor(one(), [1, 2, 3]);
    expect(codesOfTensor(gemm({ a, b, bias, datapath: "exact" }).out)).toEqual([0, 0, 0, 0, 0, 0]);
    const out = tensor(one(), [1, 2, 3, 4, 5, 6], [2, 3]);
    gemm({ a, b, out, accumulate: true, datapath: "exact" });
    expect(Array.from(out.dataSync())).toEqual([1, 2, 3, 4, 5, 6]);
    expect(
      gemm({ a: tensor(one(), [], [0, 4]), b: tensor(one(), [], [0, 4]), datapath: "fp32" }).out.shape,
    ).toEqual([0, 0]);
  });

  testInScope("leading dimensions of b are those of the result", () => {
    const [a, b] = [noise(one(), 5, 8, 27), noise(one(), 6, 8, 28).reshape([2, 3, 8])];
    expect(gemm({ a, b, datapath: "fp32" }).out.shape).toEqual([2, 3, 5]);
  });

  testInScope("errors name incompatible options", () => {
    const { a, b } = operands();
    expect(() => gemm({ a, b: transpose(b) })).toThrow(ShapeError);
    expect(() => gemm({ a, b, bias: noise(one(), 1, 3, 29) })).toThrow(/bias is \[1,3\]; it must be \[9\]/);
    expect(() => gemm({ a, b, accumulate: true })).toThrow(ArgumentError);
    expect(() => gemm({ a, b, beta: 2 })).toThrow(/there is no c/);
    expect(() => gemm({ a, b, gelu: true, biasGradient: true })).toThrow(/belongs to the backward/);
    expect(() => gemm({ a, b, splitK: 3 })).toThrow(/2 tiles of 64/);
    expect(() => gemm({ a, b, outDtype: "e2m1" as "e4m3" })).toThrow(DTypeError);
    expect(() => gemm({ a: tensor(one(), new Uint8Array(8), [1, 8], "u8"), b })).toThrow(DTypeError);
  });
});

/** The f32 values of a wide tensor. */
function gemmless(t: Tensor): Float32Array {
  const data = t.dataSync();
  if (data instanceof Float32Array) return data;
  const shift = t.dtype === "bf16" ? (u: number) => fromBits(u << 16) : halfOf;
  return Float32Array.from(data, shift);
}

function halfOf(u: number): number {
  const [exponent, mantissa] = [(u >> 10) & 31, u & 1023];
  const magnitude = exponent === 0 ? mantissa * 2 ** -24 : (1024 + mantissa) * 2 ** (exponent - 25);
  return u & 0x8000 ? -magnitude : magnitude;
}

function decodeBf16(t: Tensor): Tensor<"f32"> {
  return tensor(t.backend, gemmless(t), t.shape);
}

/** Column sums of a small f32 matrix with fewer rows than two chunks, as bit patterns (numerics.md §7.5). */
function columnSums(t: Tensor): number[] {
  const [rows, columns] = t.shape as [number, number];
  const values = gemmless(t);
  return Array.from({ length: columns }, (_, j) => {
    let total = 0;
    for (let first = 0; first < rows; first += 32) {
      let chunk = 0;
      for (let i = first; i < Math.min(rows, first + 32); i++)
        chunk = Math.fround(chunk + (values[i * columns + j] as number));
      total = Math.fround(total + chunk);
    }
    return bitsOf(total);
  });
}
