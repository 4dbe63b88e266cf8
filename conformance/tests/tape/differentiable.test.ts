/**
 * Custom differentiable operations: their gradients are used by the backward pass, and invalid gradients are refused.
 */
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  ArgumentError,
  type Backend,
  type Computed,
  DTypeError,
  differentiable,
  functional,
  noGrad,
  openBackend,
  Scope,
  ShapeError,
  scaled,
  type Tensor,
  tensor,
  Variable,
  type VariableLike,
} from "../../../src/index.js";
import { draws } from "../harness/draws.js";
import { derivatives, gridLeaf } from "../harness/gradients.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

/** Computes f(x, y, ...) for each element on the host. */
function mapElements(xs: readonly Tensor[], formula: (...values: number[]) => number): Tensor<"f32"> {
  const data = xs.map((x) => x.dataSync());
  const [firstTensor] = xs as [Tensor];
  const values = Float32Array.from(data[0] as Float32Array, (_, i) =>
    formula(...data.map((values) => Number(values[i]))),
  );
  return tensor(firstTensor.backend, values, firstTensor.shape);
}

/** An operation with two inputs and two results: sin(x) * y and y². */
function waves(x: Variable, y: Variable): readonly Variable[] {
  return differentiable([x, y], () => ({
    results: [
      mapElements([x.tensor, y.tensor], (a, b) => Math.sin(a) * b),
      mapElements([y.tensor], (b) => b * b),
    ],
    backward: ([wave, square]) => {
      const zeros = mapElements([y.tensor], () => 0);
      const [g = zeros, h = zeros] = [wave as Tensor | undefined, square as Tensor | undefined];
      return [
        mapElements([x.tensor, y.tensor, g], (a, b, grad) => Math.cos(a) * b * grad),
        mapElements(
          [x.tensor, y.tensor, g, h],
          (a, b, grad, otherGrad) => Math.sin(a) * grad + 2 * b * otherGrad,
        ),
      ];
    },
  }));
}

/** Calls `forward` with one leaf variable of ones, shape [2, 3]. */
function callDifferentiable(forward: (x: Variable) => unknown): Variable {
  const x = new Variable(tensor(backend, [1, 1, 1, 1, 1, 1], [2, 3]), true);
  const [y] = differentiable([x], () => forward(x) as Computed);
  return y as Variable;
}

describe("differentiable", () => {
  it.each(["of one result", "of both results", "of the other result"])(
    "gives derivatives %s",
    (resultChoice) => {
      fc.assert(
        fc.property(
          fc.nat(),
          fc.integer({ min: 1, max: 4 }),
          fc.integer({ min: 1, max: 9 }),
          (seed, rows, columns) => {
            using _scope = new Scope();
            const leaves = [
              gridLeaf(backend, seed, [rows, columns]),
              gridLeaf(backend, seed + 1, [rows, columns]),
            ];
            const run = (): Variable => {
              const [wave, square] = waves(...(leaves as [Variable, Variable])) as [Variable, Variable];
              if (resultChoice === "of both results") return functional.add(wave, square);
              return resultChoice === "of one result" ? wave : square;
            };
            for (const { gradient, difference, bound } of derivatives({ leaves, run }, seed))
              expect(Math.abs(gradient - difference)).toBeLessThanOrEqual(bound + 2 ** -16);
          },
        ),
        { numRuns: draws(20) },
      );
    },
  );

  it("can be combined with other operations, sums the gradients of an input that is used twice, and disposes of saved tensors", () => {
    const blocksBefore = backend.memoryUse().blocks;
    {
      using _scope = new Scope();
      const x = new Variable(tensor(backend, [1, -2, 3]), true);
      const twice = (input: Variable): Variable => {
        const [y] = differentiable([input], (grad) => {
          expect(grad).toBe(true);
          const keptTensor = scaled(input.tensor, 1);
          return {
            results: [scaled(input.tensor, 2)],
            saved: [keptTensor],
            backward: ([g]) => {
              expect(keptTensor.disposed).toBe(false);
              return [g && scaled(g as Tensor, 2)];
            },
          };
        });
        return y as Variable;
      };
      functional
        .mseLoss(functional.add(twice(functional.activation(x, "relu")), x), tensor(backend, [0, 0, 0]))
        .backward();
      // (3x)² where x is positive, else x²; mean over 3 elements
      expect([...(x.grad?.dataSync() ?? [])]).toEqual([6, Math.fround(-4 / 3), 18]);
      x.zeroGrad();
    }
    expect(backend.memoryUse().blocks).toBe(blocksBefore);
  });

  it("records no node inside noGrad, and none for constants", () => {
    using _scope = new Scope();
    const x = tensor(backend, [1, 2]);
    const flags: boolean[] = [];
    const identity = (input: VariableLike): Variable => {
      const [y] = differentiable([input], (grad) => {
        flags.push(grad);
        return { results: [scaled(x, 1)], backward: (grads) => grads };
      });
      return y as Variable;
    };
    for (const y of [identity(x), noGrad(() => identity(new Variable(x, true)))])
      expect(() => y.backward(x)).toThrow(ArgumentError);
    expect(flags).toEqual([false, false]);
  });

  const results = (x: Variable) => [scaled(x.tensor, 1)];
  it.each<[string, (x: Variable) => unknown]>([
    ["nothing", () => undefined],
    ["a promise", async (x) => ({ results: results(x), backward: () => [] })],
    ["no list of results", (x) => ({ results: x.tensor, backward: () => [] })],
    ["no backward", (x) => ({ results: results(x) })],
    ["saved that is no list", (x) => ({ results: results(x), backward: () => [], saved: x.tensor })],
  ])("refuses a forward that returns %s", (_, forward) => {
    using _scope = new Scope();
    expect(() => callDifferentiable(forward)).toThrow(ArgumentError);
  });

  it("refuses results that are not tensors", () => {
    using _scope = new Scope();
    expect(() => callDifferentiable(() => ({ results: [1], backward: () => [] }))).toThrow(ArgumentError);
  });

  const otherTensor = () => tensor(backend, new Float32Array(6), [3, 2]);
  it.each<[string, new (message: string) => Error, () => unknown]>([
    ["no list", ArgumentError, () => undefined],
    ["a number", DTypeError, () => [1]],
    ["another shape", ShapeError, () => [otherTensor()]],
    ["no elements of a wide type", DTypeError, () => [tensor(backend, new Int32Array(6), [2, 3], "i32")]],
  ])("refuses a gradient that is %s", (_, error, backward) => {
    using _scope = new Scope();
    const y = callDifferentiable((x) => ({ results: results(x), backward }));
    expect(() => y.backward(tensor(backend, new Float32Array(6), [2, 3]))).toThrow(error);
  });

  it("refuses a gradient on another backend", async () => {
    const foreignBackend = await openBackend("wasm", { threads: 1 });
    {
      using _scope = new Scope();
      const y = callDifferentiable((x) => ({
        results: results(x),
        backward: () => [tensor(foreignBackend, new Float32Array(6), [2, 3])],
      }));
      expect(() => y.backward(tensor(backend, new Float32Array(6), [2, 3]))).toThrow(ArgumentError);
    }
    await foreignBackend.dispose();
  });
});
