// The maximum of Adam with amsgrad is C++'s std::max(maximum, square), which returns the old maximum if either is NaN.
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { Call } from "../../../src/referee/call.js";
import { adam } from "../../../src/referee/optimizers.js";
import type { Value } from "../../../src/referee/value.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const f32 = (values: readonly number[]): Value => ({
  dtype: "F32",
  shape: [values.length],
  bytes: new Uint8Array(Float32Array.from(values).buffer),
});
const numbersOf = (value: unknown): number[] => [
  ...new Float32Array((value as Value).bytes.slice().buffer as ArrayBuffer),
];

const { fround, sqrt } = Math;
const NUMBERS = [0, 1, 4, Number.POSITIVE_INFINITY, Number.NaN];
/** All pairs of an old maximum and a new average of squares. */
const PAIRS = NUMBERS.flatMap((maximum) => NUMBERS.map((square) => [maximum, square] as const));

it.each([
  ["Adam", false],
  ["AdamW", true],
] as const)("%s divides by the maximum", (_, isDecoupled) => {
  const [maxima, squares] = [0, 1].map((k) => PAIRS.map((pair) => pair[k] as number)) as [number[], number[]];
  const names = ["self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"];
  const filledTensor = (value: number): number[] => PAIRS.map(() => value);
  // gradients of 0 halve both averages
  const doubledSquares = squares.map((square) => 2 * square);
  const lists = [filledTensor(1), filledTensor(0), filledTensor(1), doubledSquares, maxima, [1]].map(
    (values) => [f32(values)],
  );
  const numbers = {
    lr: 0.5,
    beta1: 0.5,
    beta2: 0.5,
    weight_decay: 0,
    eps: 0,
    amsgrad: true,
    maximize: false,
  };
  const results = adam(isDecoupled)(new Call(backend, names, lists, numbers)).map(numbersOf);
  const expected = PAIRS.map(([maximum, square]) =>
    Number.isNaN(maximum + square) ? maximum : Math.max(maximum, square),
  );
  const params = expected.map((maximum) => {
    const denominator = fround(fround(sqrt(maximum)) / fround(sqrt(0.5)));
    return fround(1 - fround(0.5 / denominator));
  });
  expect(results).toEqual([params, filledTensor(0), filledTensor(0.5), squares, expected]);
});
