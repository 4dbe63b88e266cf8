// The negative log-likelihood loss with ignored rows, for which no call is recorded. The sums are exact, so their order is
// irrelevant.
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { type Argument, Call } from "../../../src/referee/call.js";
import { NotModelled } from "../../../src/referee/not-modelled.js";
import { callWitness, OPERATORS, type OperatorRow } from "../../../src/referee/table.js";
import type { Value } from "../../../src/referee/value.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const FORWARD = OPERATORS["aten::nll_loss_forward"] as OperatorRow;
const BACKWARD = OPERATORS["aten::nll_loss_backward"] as OperatorRow;

const callOf = ({ parameters }: OperatorRow, args: readonly Argument[]): Call =>
  new Call(backend, parameters.split(" "), args, {});

function f32(shape: readonly number[], values: readonly number[]): Value {
  return { dtype: "F32", shape, bytes: new Uint8Array(Float32Array.from(values).buffer) };
}

function classesOf(list: readonly number[]): Value {
  return {
    dtype: "I64",
    shape: [list.length],
    bytes: new Uint8Array(BigInt64Array.from(list, BigInt).buffer),
  };
}

const numbers = ({ bytes }: Value): readonly number[] => [...new Float32Array(bytes.slice().buffer)];

const SIZE = 5;
const IGNORED = -100;

/** Rows whose elements are multiples of 1/8, and the class of each row or `IGNORED`. */
const losses = fc
  .array(fc.tuple(fc.constantFrom(IGNORED, 0, 1, 2, 3, 4), fc.integer({ min: -64, max: 64 })), {
    minLength: 1,
    maxLength: 2000,
  })
  .map((rows) => ({
    classes: rows.map(([rowClass]) => rowClass),
    x: rows.flatMap(([, value]) => Array.from({ length: SIZE }, (_, i) => (value + i) / 8)),
  }));

describe("the negative log-likelihood loss", () => {
  it("leaves ignored rows out", () => {
    fc.assert(
      fc.property(losses, ({ classes, x }) => {
        const lost = classes.map((target, row) =>
          target === IGNORED ? 0 : 0 - (x[row * SIZE + target] as number),
        );
        const count = classes.filter((target) => target !== IGNORED).length;
        const total = lost.reduce((sum, value) => sum + value, 0);
        const expected = [lost, [Math.fround(total / count)], [total]];
        for (const [reduction, results] of expected.entries()) {
          const args = [f32([classes.length, SIZE], x), classesOf(classes), null, reduction, IGNORED];
          const [loss, weight] = FORWARD.model(callOf(FORWARD, args)) as [Value, Value];
          expect(numbers(loss).map((number) => number + 0)).toEqual(results.map((result) => result + 0));
          expect(numbers(weight)).toEqual([reduction === 0 ? 0 : count]);
        }
      }),
    );
  });

  it("has a gradient of +0 in ignored rows and at other classes", () => {
    fc.assert(
      fc.property(losses, fc.integer({ min: 0, max: 2 }), ({ classes, x }, reduction) => {
        const gradOutput =
          reduction === 0
            ? f32(
                [classes.length],
                classes.map(() => 3),
              )
            : f32([], [3]);
        const args = [
          gradOutput,
          f32([classes.length, SIZE], x),
          classesOf(classes),
          null,
          reduction,
          IGNORED,
        ];
        const [gradient] = BACKWARD.model(callOf(BACKWARD, [...args, f32([], [8])])) as [Value];
        const slope = reduction === 1 ? -3 / 8 : -3;
        const expected = classes.flatMap((target) =>
          Array.from({ length: SIZE }, (_, i) => (i === target ? slope : 0)),
        );
        expect(numbers(gradient)).toEqual(expected);
      }),
    );
  });

  it("has a witness without ignored rows only, and no model of weights of classes", () => {
    const x = f32([2, 2], [1, 2, 3, 4]);
    const callFor = (list: readonly number[], weight: Value | null = null): Call =>
      callOf(FORWARD, [x, classesOf(list), weight, 1, IGNORED]);
    expect(callWitness(FORWARD, callFor([0, 1]))?.chip).toBe("h200");
    expect(callWitness(FORWARD, callFor([0, IGNORED]))).toBeUndefined();
    expect(() => FORWARD.model(callFor([0, 1], f32([2], [1, 2])))).toThrow(NotModelled);
    expect(() => FORWARD.model(callFor([0, 2]))).toThrow(/out of range/);
  });
});
