import { beforeAll, describe, expect, it, test } from "vitest";
import { openBackend } from "../../../src/backends/open.js";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor, zeros } from "../../../src/ops/create.js";
import { type AdamWStepOptions, adamw, type SGDStepOptions, sgd } from "../../../src/ops/update/optimizer.js";
import { f32, fromBits, minus, ofNumber, rational, times } from "../../oracle/core/rational.js";
import * as oracle from "../../oracle/update/optimizer.js";
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
const CUTS = [
  [0, 64],
  [64, 65],
  [65, 600],
  [600, 1101],
] as const;
const LENGTH = 1101;

/** `LENGTH` values, special ones included. */
function values(range: number, seed: number): number[] {
  return [...evenF32(LENGTH - SPECIALS.length, range, seed), ...SPECIALS];
}

describe.each(WIDE_TYPES)("$name gradients", ({ type, round }) => {
  const grad = values(1, 3).map(round);
  const [p, m] = [values(4, 5).reverse(), values(1, 7)];
  const v = values(1, 11)
    .map((x) => x * x)
    .map(Math.fround);
  const numbers = { learningRate: 0.01, weightDecay: 0.1 };
  const f = Math.fround;

  test.each(WIDE_TYPES.slice(1))(
    "sgd and its $name copy have the bits of the definition, however the range is divided among threads",
    (copied) => {
      stems.reset();
      const scratch = stems.allocate(1 << 14);
      const [at, parameter, state] = [stems.putWide(type, grad), stems.putWide(0, p), stems.putWide(0, m)];
      const copy = stems.allocate(2 * LENGTH);
      for (const [begin, end] of CUTS) {
        const tensors = { grad: at, gradType: type, p: parameter, m: state, copy, copyType: copied.type };
        const rates = { gradScale: 0.5, learningRate: f(0.01), weightDecay: f(0.1) };
        const rule = { momentum: f(0.9), undamped: f(0.8), nesterov: false, first: false };
        stems.run("sgd", { ...tensors, ...rates, ...rule }, { scratch, begin, end });
      }
      const options = { ...numbers, momentum: 0.9, dampening: 0.2, nesterov: false, first: false };
      const expected = p.map((x, i) => oracle.sgd({ ...options, g: grad[i]! / 2, p: x, m: m[i]! }));
      expect(stems.getWide(0, parameter, LENGTH)).toEqual(expected.map((element) => element.p));
      expect(stems.getWide(0, state, LENGTH)).toEqual(expected.map((element) => element.m));
      expect(stems.getWide(copied.type, copy, LENGTH)).toEqual(
        expected.map((element) => copied.round(element.p)),
      );
    },
  );

  test.each([true, false])(
    "adamw, decoupled %s, has the bits of the definition, however the range is divided among threads",
    (decoupled) => {
      stems.reset();
      const scratch = stems.allocate(1 << 14);
      const [at, parameter] = [stems.putWide(type, grad), stems.putWide(0, p)];
      const [first, second] = [stems.putWide(0, m), stems.putWide(0, v)];
      const correction1 = oracle.correction(f(0.9), 3);
      const correction2 = oracle.correction(f(0.999), 3);
      for (const [begin, end] of CUTS) {
        const tensors = { grad: at, gradType: type, p: parameter, m: first, v: second, copy: 0, copyType: 0 };
        const rates = { gradScale: 1, learningRate: f(0.01), weightDecay: f(0.1) };
        const rule = {
          beta1: f(0.9),
          beta2: f(0.999),
          correction1,
          correction2,
          epsilon: f(1e-8),
          decoupled,
        };
        stems.run("adamw", { ...tensors, ...rates, ...rule }, { scratch, begin, end });
      }
      const options = { ...numbers, beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled, step: 3 };
      const wanted = p.map((x, i) => oracle.adamw({ ...options, g: grad[i]!, p: x, m: m[i]!, v: v[i]! }));
      expect(stems.getWide(0, parameter, LENGTH)).toEqual(wanted.map((element) => element.p));
      expect(stems.getWide(0, first, LENGTH)).toEqual(wanted.map((element) => element.m));
      expect(stems.getWide(0, second, LENGTH)).toEqual(wanted.map((element) => element.v));
    },
  );
});

test("the oracle's square root is the nearest f32", () => {
  for (const x of [...evenF32(500, 4, 9).map(Math.abs), 2 ** -149, 2 ** -126, fromBits(0x7f7fffff), 3, 4, 2])
    expect(oracle.sqrt(x)).toBe(Math.fround(Math.sqrt(x)));
  expect([0, -0, -1, 1 / 0, Number.NaN].map(oracle.sqrt)).toEqual([0, -0, Number.NaN, 1 / 0, Number.NaN]);
});

describe("results of the sources' formulas in exact numbers", () => {
  const one = () => tensor(backend(), [1]);
  const of = (x: number) => tensor(backend(), [x]);

  testInScope("three steps of torch.optim.SGD with exact numbers", () => {
    const [parameter, grad, m] = [one(), of(0.5), empty(backend(), "f32", [1])];
    const options = { learningRate: 0.5, momentum: 0.5, weightDecay: 0.25, dampening: 0.5 };
    const trace = [true, false, false].map((first) => {
      sgd({ parameter, grad, m }, { ...options, first });
      return [parameter.dataSync()[0], m.dataSync()[0]];
    });
    expect(trace).toEqual([
      [0.625, 0.75],
      [0.2734375, 0.703125],
      [-0.04443359375, 0.6357421875],
    ]);
  });

  testInScope("nesterov uses the gradient plus momentum times the new buffer", () => {
    const [parameter, m] = [one(), of(1)];
    sgd({ parameter, grad: of(1), m }, { learningRate: 0.25, momentum: 0.5, nesterov: true });
    expect([parameter.dataSync()[0], m.dataSync()[0]]).toEqual([1 - 0.25 * 1.75, 1.5]);
  });

  testInScope("the first step of adamw moves by the learning rate, whatever the gradient's size", () => {
    for (const size of [2 ** -10, 1, 2 ** 10]) {
      const [parameter, m, v] = [one(), of(0), of(0)];
      adamw({ parameter, grad: of(-size), m, v }, { learningRate: 0.125, step: 1, eps: 0 });
      expect(parameter.dataSync()[0]).toBe(1.125);
    }
  });

  testInScope(
    "decoupled weight decay shrinks the parameter, and decay added to the gradient is normalised away",
    () => {
      const run = (decoupled: boolean) => {
        const parameter = of(8);
        const states = { m: of(0), v: of(0) };
        adamw(
          { parameter, grad: of(0), ...states },
          { learningRate: 0.25, step: 1, weightDecay: 0.5, decoupled },
        );
        return parameter.dataSync()[0]!;
      };
      expect(run(true)).toBe(7);
      expect(run(false)).toBe(7.75);
    },
  );

  it("corrections are 1 - beta^step", () => {
    expect(oracle.correction(Math.fround(0.9), 1)).toBe(Math.fround(1 - Math.fround(0.9)));
    const exact = Array.from({ length: 10 }, () => ofNumber(Math.fround(0.9))).reduce(times);
    expect(oracle.correction(Math.fround(0.9), 10)).toBe(f32(minus(rational(1n), exact)));
    expect(oracle.correction(Math.fround(0.999), Number.MAX_SAFE_INTEGER)).toBe(1);
  });
});

describe("a step leaves unchanged", () => {
  const states = () => ({ m: tensor(backend(), [3, 3, 3]), v: tensor(backend(), [4, 4, 4]) });
  const three = () => tensor(backend(), [1, 2, 3]);

  testInScope("everything if noop is 1", () => {
    const copy = empty(backend(), "bf16", [3]).write(Uint16Array.of(7, 8, 9));
    const inputs = { parameter: three(), grad: three(), ...states(), copy, noop: tensor(backend(), [1]) };
    sgd(inputs, { learningRate: 1, momentum: 0.5 });
    adamw(inputs, { learningRate: 1, step: 1 });
    expect([...inputs.parameter.dataSync(), ...inputs.m.dataSync(), ...inputs.v.dataSync()]).toEqual([
      1, 2, 3, 3, 3, 3, 4, 4, 4,
    ]);
    expect([...copy.dataSync()]).toEqual([7, 8, 9]);
  });

  testInScope("the buffer without momentum, and the gradient always", () => {
    const inputs = { parameter: three(), grad: three(), m: states().m, gradScale: tensor(backend(), [2]) };
    sgd(inputs, { learningRate: 0.5 });
    expect([...inputs.m.dataSync()]).toEqual([3, 3, 3]);
    expect([...inputs.grad.dataSync()]).toEqual([1, 2, 3]);
    expect([...inputs.parameter.dataSync()]).toEqual([0, 0, 0]);
  });

  testInScope("an empty tensor", () => {
    const none = () => zeros(backend(), "f32", [0, 4]);
    sgd({ parameter: none(), grad: none() }, { learningRate: 1 });
    adamw({ parameter: none(), grad: none(), m: none(), v: none() }, { learningRate: 1, step: 1 });
  });
});

describe("refuses", () => {
  const three = () => tensor(backend(), [1, 2, 3]);
  const inputs = () => ({ parameter: three(), grad: three(), m: three(), v: three() });

  testInScope("options outside their domain", () => {
    const bad: Partial<SGDStepOptions>[] = [
      { learningRate: -1 },
      { learningRate: Number.NaN },
      { momentum: 1e39 },
      { weightDecay: -0.1 },
      { dampening: 2 },
      { nesterov: true },
      { nesterov: true, momentum: 0.9, dampening: 0.1 },
    ];
    for (const options of bad)
      expect(() => sgd(inputs(), { learningRate: 1, ...options })).toThrow(ArgumentError);
    const worse: Partial<AdamWStepOptions>[] = [
      { step: 0 },
      { step: 1.5 },
      { step: 2 ** 53 },
      { beta1: 1 },
      { beta2: 1 - 2 ** -30 },
      { beta2: -0.5 },
      { eps: -1 },
    ];
    for (const options of worse)
      expect(() => adamw(inputs(), { learningRate: 1, step: 1, ...options })).toThrow(ArgumentError);
  });

  testInScope("tensors that do not fit", () => {
    const { parameter, grad } = inputs();
    const one = { learningRate: 1 };
    expect(() => sgd({ parameter, grad }, { ...one, momentum: 0.9 })).toThrow(
      "momentum is 0.8999999761581421; it needs a buffer, m",
    );
    expect(() => sgd({ parameter, grad: tensor(backend(), [1]) }, one)).toThrow(ShapeError);
    expect(() => sgd({ parameter, grad, noop: three() }, one)).toThrow(ShapeError);
    expect(() => sgd({ parameter, grad: empty(backend(), "e4m3", [3]) }, one)).toThrow(DTypeError);
    const wrong = [
      empty(backend(), "f32", [3]),
      empty(backend(), "u16", [3]),
      empty(backend(), "bf16", [3]),
    ] as const;
    // @ts-expect-error a copy of f32
    expect(() => sgd({ parameter, grad, copy: wrong[0] }, one)).toThrow(DTypeError);
    // @ts-expect-error a copy of integers
    expect(() => sgd({ parameter, grad, copy: wrong[1] }, one)).toThrow(DTypeError);
    // @ts-expect-error a parameter of bf16
    expect(() => sgd({ parameter: wrong[2], grad }, one)).toThrow(DTypeError);
    // @ts-expect-error moments of bf16
    expect(() => adamw({ parameter, grad, m: wrong[2], v: three() }, { ...one, step: 1 })).toThrow(
      DTypeError,
    );
    const short = tensor(backend(), [0]);
    expect(() => adamw({ parameter, grad, m: three(), v: short }, { ...one, step: 1 })).toThrow(ShapeError);
  });

  testInScope("tensors that share memory, also those that sgd neither reads nor writes", () => {
    const { grad, ...own } = inputs();
    for (const [momentum, inputs] of [
      [0, { v: own.parameter }],
      [0, { m: own.parameter }],
      [0.5, { m: own.m, v: own.m }],
    ] as const) {
      const step = () => sgd({ ...own, grad, ...inputs }, { learningRate: 1, momentum });
      expect(step).toThrow(ArgumentError);
      expect(step).toThrow(/^sgd: .* shares memory with/);
    }
  });

  it("tensors of two backends", async () => {
    const other = await openBackend("wasm", { threads: 1 });
    const [parameter, grad] = [tensor(backend(), [1]), tensor(other, [1])];
    expect(() => sgd({ parameter, grad }, { learningRate: 1 })).toThrow(ArgumentError);
    parameter.dispose();
    grad.dispose();
    await other.dispose();
  });
});

testEqualBits("threads do not change a bit", useThreads(), (each) => {
  const size = 500_003;
  const wave = (seed: number) =>
    tensor(
      each,
      Float32Array.from({ length: size }, (_, i) => ((i * seed) % 1013) - 500),
    );
  const [parameter, m, v] = [wave(7), wave(11), zeros(each, "f32", [size])];
  const copy = empty(each, "bf16", [size]);
  sgd({ parameter, grad: wave(13), m, copy }, { learningRate: 0.1, momentum: 0.9 });
  adamw({ parameter, grad: wave(17), m, v, copy }, { learningRate: 0.1, step: 5, weightDecay: 0.1 });
  return { parameter: download(parameter), m: download(m), v: download(v), copy: download(copy) };
});

describeLaws(useBackend({ threads: 2 }), ["sgd", "adamw"], { runs: 150, seed: derivedSeed(23) });
