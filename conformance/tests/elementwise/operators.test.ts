/** The elementwise operators: their definition for every division of the work, laws, threads and refusals. */
import { beforeAll, describe, expect, it, test } from "vitest";
import {
  OPERATOR_NAMES,
  OPERATORS,
  type Operator,
  type OperatorName,
} from "../../../src/backends/elementwise.js";
import { openBackend } from "../../../src/backends/open.js";
import type { ExportArgs } from "../../../src/backends/wasm/call.js";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { activation } from "../../../src/ops/elementwise/activation.js";
import * as operators from "../../../src/ops/elementwise/operators.gen.js";
import type { ResultOptions } from "../../../src/ops/execute.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { OPERATORS as RULES } from "../../oracle/elementwise/operators.js";
import { download } from "../../values/plain.js";
import { anyF32, EVERY_BF16, evenF32, SPECIALS, WIDE_TYPES } from "../../values/samples.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { derivedSeed, draws, sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const { add, divide, exp, multiply, rsqrt, scaled, sigmoid, where } = operators;
const FUNCTIONS = new Map<string, (...args: never[]) => Tensor>(Object.entries(operators));
const CUTS = [
  [0, 32],
  [64, 1101],
  [32, 64],
] as const;
const LENGTH = 1101;

/** Every pair of special values, then numbers of any size. */
const X = [...SPECIALS.flatMap((x) => SPECIALS.map(() => x)), ...anyF32(500, 3), ...evenF32(501, 4, 5)];
const Y = [...SPECIALS.flatMap(() => SPECIALS), ...anyF32(500, 7), ...evenF32(501, 4, 11)];
/** Zeros of both signs, numbers and NaN. */
const CONDITION = X.map((_, i) => [0, -0, 1, 2 ** -149, -3, Number.NaN][i % 6] as number);
const COLUMNS: Readonly<Record<string, readonly number[]>> = { x: X, y: Y, condition: CONDITION };
const NUMBERS = [...SPECIALS, ...[0.1, -3, 2 ** -24, 2 ** 100].map(Math.fround)];

let stems: Stems;
beforeAll(async () => {
  stems = await openStems("operators");
});

const backend = useBackend();

/** An operator with the counts of its inputs and numbers, its f32 value, and its function. */
function operator(name: OperatorName) {
  const { inputs, numbers = {} }: Operator = OPERATORS[name];
  const value: (...values: readonly number[]) => number = RULES[name].value;
  const apply = (tensors: readonly Tensor[], options?: ResultOptions): Tensor => {
    const args = [...tensors, ...Object.keys(numbers).map(() => 1 / 3), options];
    return FUNCTIONS.get(name)!(...(args as never[]));
  };
  const inputNames = Object.keys(inputs);
  return {
    name,
    inputNames,
    numberNames: Object.keys(numbers),
    arity: inputNames.length,
    isScaled: Object.keys(numbers).length > 0,
    value,
    apply,
  };
}

const ALL = OPERATOR_NAMES.map(operator);

/** The number of elements, large enough that every thread has some. */
const ELEMENTS = IS_FULL ? 500_003 : 100_003;

/** The types of the inputs of an operator, in all combinations. */
const typesOf = (arity: number): readonly { readonly types: readonly (typeof WIDE_TYPES)[number][] }[] =>
  arity === 0
    ? [{ types: [] }]
    : WIDE_TYPES.flatMap((firstType) =>
        typesOf(arity - 1).map(({ types }) => ({ types: [firstType, ...types] })),
      );

describe.each(ALL)("$name", ({ name, arity, isScaled, value, inputNames, numberNames, apply }) => {
  test.each(sampleCases(typesOf(arity)))(
    "of $types.0.name, $types.1.name, $types.2.name has the rounded result in each output type and in place, however the range is divided",
    ({ types }) => {
      const columns = inputNames.map((inputName, i) => COLUMNS[inputName]!.map(types[i]!.round));
      for (const numbers of isScaled ? sampleCases(NUMBERS, 2).map((number) => [number]) : [[]]) {
        const results = columns[0]!.map((_, i) => value(...columns.map((column) => column[i]!), ...numbers));
        const places = [
          ...WIDE_TYPES.map((outType) => ({ outType, target: undefined })),
          ...types.map((outType, target) => ({ outType, target })),
        ];
        for (const { outType, target } of places) {
          stems.reset();
          const scratch = stems.allocate(1 << 14);
          const sources = columns.map((column, i) => stems.putWide(types[i]!.type, column));
          const out = target === undefined ? stems.allocate(4 * LENGTH) : sources[target]!;
          const inputs = inputNames.flatMap((inputName, i) => [
            [inputName, sources[i]!],
            [`${inputName}Type`, types[i]!.type],
          ]);
          const values = Object.fromEntries([
            ...inputs,
            ...numberNames.map((numberName, i) => [numberName, numbers[i]!]),
          ]);
          const args = { ...values, out, outType: outType.type } as ExportArgs<typeof name>;
          for (const [begin, end] of CUTS) stems.run(name, args, { scratch, begin, end });
          expect(stems.getWide(outType.type, out, LENGTH)).toEqual(results.map(outType.round));
        }
      }
    },
  );

  testInScope("has the type of x by default", () => {
    const inputs = inputNames.map((inputName) =>
      inputName === "x" ? empty(backend(), "bf16", [2]) : tensor(backend(), [1, 2]),
    );
    expect([apply(inputs).dtype, apply(inputs, { outDtype: "f16" }).dtype]).toEqual(["bf16", "f16"]);
  });

  testInScope("writes the given output, which may be an input, and leaves the others", () => {
    const inputs = () => inputNames.map((_, i) => tensor(backend(), [i, 10 * i + 2]));
    const expected = [...apply(inputs()).dataSync()];
    const [sources, out] = [inputs(), empty(backend(), "f32", [2])];
    expect(apply(sources, { out })).toBe(out);
    expect([...out.dataSync()]).toEqual(expected);
    expect(sources.map((source) => [...source.dataSync()])).toEqual(
      inputs().map((source) => [...source.dataSync()]),
    );
    for (const [i] of inputNames.entries()) {
      const args = inputs();
      expect(apply(args, { out: args[i], outDtype: "f32" })).toBe(args[i]);
      expect([...args[i]!.dataSync()]).toEqual(expected);
    }
  });

  testInScope("of empty tensors is empty", () => {
    const inputs = inputNames.map((_, i) => empty(backend(), WIDE_TYPES[i]!.name, [0, 3]));
    expect(apply(inputs).shape).toEqual([0, 3]);
  });

  testInScope("refuses tensors that do not fit", () => {
    const [x, codes] = [tensor(backend(), [1, 2]), empty(backend(), "e4m3", [2])];
    const inputs = Array<Tensor>(arity).fill(x);
    for (const [i] of inputNames.entries()) expect(() => apply(inputs.with(i, codes))).toThrow(DTypeError);
    const row = tensor(backend(), [1, 2], [1, 2]);
    for (const [i] of inputNames.entries())
      if (arity > 1) expect(() => apply(inputs.with(i, row))).toThrow(ShapeError);
    expect(() => apply(inputs, { out: tensor(backend(), [1]) })).toThrow(ShapeError);
    expect(() => apply(inputs, { out: codes })).toThrow(DTypeError);
    expect(() => apply(inputs, { out: x, outDtype: "bf16" })).toThrow("out is f32 and outDtype bf16");
  });

  it("refuses tensors of two backends", async () => {
    const otherBackend = await openBackend("wasm", { threads: 1 });
    const [x, y] = [tensor(backend(), [1]), tensor(otherBackend, [1])];
    const inputs = Array<Tensor>(arity).fill(x);
    for (const [i] of inputNames.entries())
      if (arity > 1) expect(() => apply(inputs.with(i, y))).toThrow(ArgumentError);
    expect(() => apply(Array<Tensor>(arity).fill(x), { out: y })).toThrow(ArgumentError);
    x.dispose();
    y.dispose();
    await otherBackend.dispose();
  });

  testEqualBits("threads do not change a bit", useThreads(), (testBackend) => {
    const wave = (seed: number) =>
      tensor(
        testBackend,
        Float32Array.from({ length: ELEMENTS }, (_, i) => ((i * seed) % 1013) / 7),
      );
    const inputs = [wave(7), wave(11), wave(13)].slice(0, arity);
    const result = download(apply(inputs, { outDtype: "bf16" }));
    return { result, inPlace: download(apply(inputs, { out: inputs[0] })) };
  });
});

describe("overflow and rounding", () => {
  testInScope("of sums: once, to infinity", () => {
    const [x, y] = [tensor(backend(), [65504, 256, 2 ** 127]), tensor(backend(), [16, 1, 2 ** 127])];
    expect([...add(x, y, { outDtype: "f16" }).dataSync()]).toEqual([0x7c00, 0x5c04, 0x7c00]);
    expect([...add(x, y, { outDtype: "bf16" }).dataSync()]).toEqual([0x4780, 0x4380, 0x7f80]);
    add(x, x, { out: x });
    expect([...x.dataSync()]).toEqual([131008, 512, Number.POSITIVE_INFINITY]);
  });

  testInScope("of products: once, to infinity, with the sign of a zero", () => {
    const [x, y] = [
      tensor(backend(), [65504, 257, 2 ** 127, -0, 2 ** -100, 1 / 0]),
      tensor(backend(), [2, 3, -2, 5, 2 ** -50, 0]),
    ];
    expect([...multiply(x, y).dataSync()]).toEqual([131008, 771, -1 / 0, -0, 0, Number.NaN]);
    expect([...multiply(x, y, { outDtype: "f16" }).dataSync()].slice(0, 3)).toEqual([0x7c00, 0x6206, 0xfc00]);
  });

  testInScope("of multiples: the factor is rounded to f32", () => {
    const x = tensor(backend(), [1, 3, -0]);
    expect([...scaled(x, 0.1).dataSync()]).toEqual([0.1, Math.fround(0.1) * 3, -0].map(Math.fround));
    expect([...scaled(x, 1e39).dataSync()]).toEqual([1 / 0, 1 / 0, Number.NaN]);
    const y = tensor(backend(), [65504, 257 / 3, 2 ** 127]);
    expect([...scaled(y, 3, { outDtype: "bf16" }).dataSync()]).toEqual([0x4840, 0x4380, 0x7f80]);
    expect([...scaled(y, 2, { outDtype: "f16" }).dataSync()]).toEqual([0x7c00, 0x595b, 0x7c00]);
  });
});

describe("special values", () => {
  testInScope("of quotients", () => {
    const [x, y] = [
      tensor(backend(), [1, -1, 0, 1, -1, 2 ** -149, 2 ** 127]),
      tensor(backend(), [3, 0, -0, -0, 1 / 0, 2, 2 ** -3]),
    ];
    expect([...divide(x, y).dataSync()]).toEqual([
      Math.fround(1 / 3),
      -1 / 0,
      Number.NaN,
      -1 / 0,
      -0,
      0,
      1 / 0,
    ]);
  });

  testInScope("of exponentials", () => {
    const x = tensor(backend(), [-1 / 0, -200, -0, 0, 1, 89, 1 / 0, Number.NaN]);
    expect([...exp(x).dataSync()]).toEqual([0, 0, 1, 1, Math.fround(Math.E), 1 / 0, 1 / 0, Number.NaN]);
  });

  testInScope("of reciprocal square roots", () => {
    const x = tensor(backend(), [4, 0, -0, -1, 1 / 0, Number.NaN, 2 ** -148]);
    expect([...rsqrt(x).dataSync()]).toEqual([0.5, 1 / 0, -1 / 0, Number.NaN, 0, Number.NaN, 2 ** 74]);
  });

  testInScope("of conditions: zeros of both signs are false, NaN is true", () => {
    const condition = tensor(backend(), [0, -0, Number.NaN, 2 ** -149, -1 / 0]);
    const [x, y] = [tensor(backend(), [1, 2, 3, 4, 5]), tensor(backend(), [-1, -2, -3, -4, Number.NaN])];
    expect([...where(condition, x, y).dataSync()]).toEqual([-1, -2, 3, 4, 5]);
  });
});

describe("sigmoid", () => {
  const inputs = [...SPECIALS, ...sampleCases(EVERY_BF16), ...evenF32(draws(1 << 15), 12)];

  testInScope("has the bits of the activation of that kind", () => {
    const x = tensor(backend(), Float32Array.from(inputs));
    for (const outDtype of ["f32", "bf16", "f16"] as const)
      expect(download(sigmoid(x, { outDtype }))).toEqual(
        download(activation(x, { kind: "sigmoid", outDtype })),
      );
  });

  testInScope("is 0 at -infinity, 1/2 at zeros, 1 at infinity and NaN at NaN", () => {
    const x = tensor(backend(), [-1 / 0, -0, 0, 1 / 0, Number.NaN]);
    expect([...sigmoid(x).dataSync()]).toEqual([0, 0.5, 0.5, 1, Number.NaN]);
  });
});

describeLaws(useBackend({ threads: 2 }), OPERATOR_NAMES, { runs: 300, seed: derivedSeed(31) });
