/** The law that gradients are derivatives, as a test of a function over drawn sizes. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { ActivationName } from "../../../src/backends/ops.js";
import type { MLPActivation } from "../../../src/modules/layer-norm-mlp.js";
import type { Module } from "../../../src/modules/module.js";
import { tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { draws } from "./draws.js";
import { type DifferentiableFunction, derivatives } from "./gradients.js";

/** Activations with kinks. */
export const KINKED_ACTIVATIONS: readonly string[] = ["relu", "reglu"] satisfies (
  | ActivationName
  | MLPActivation
)[];

/** The sizes of a case, its seed, and two switches. */
export interface DrawnCase {
  readonly rows: number;
  readonly columns: number;
  readonly extra: number;
  readonly seed: number;
  readonly firstFlag: boolean;
  readonly secondFlag: boolean;
}

const size = fc.integer({ min: 1, max: 9 });
const drawnCases: fc.Arbitrary<DrawnCase> = fc.record({
  rows: size,
  // a norm over very few columns is nearly a step function
  columns: fc.integer({ min: 5, max: 17 }),
  extra: size,
  seed: fc.nat(),
  firstFlag: fc.boolean(),
  secondFlag: fc.boolean(),
});

/** Creates the function to differentiate on a backend. `using` disposes of its modules. */
export type Make = (b: Backend, drawn: DrawnCase, using: (module: Module) => void) => DifferentiableFunction;

/** Tests that all derivatives lie within their bounds. */
export type Differentiates = (name: string, make: Make, numRuns?: number) => void;

export function differentiatesOn(backend: () => Backend): Differentiates {
  return (name, make, numRuns = draws(12, 4)) => {
    it(name, () => {
      fc.assert(
        fc.property(drawnCases, (drawnCase) => {
          using _scope = new Scope();
          const modules: Module[] = [];
          try {
            const comparisons = derivatives(
              make(backend(), drawnCase, (module) => modules.push(module)),
              drawnCase.seed,
            );
            for (const { gradient, difference, bound } of comparisons)
              expect(Math.abs(gradient - difference), `${gradient} and ${difference}`).toBeLessThanOrEqual(
                bound,
              );
          } finally {
            for (const module of modules) module.dispose();
          }
        }),
        { numRuns },
      );
    });
  };
}

/** `count` i32 numbers below `classes`. */
export function labels(b: Backend, seed: number, count: number, classes: number): Tensor<"i32"> {
  const numbers = Int32Array.from(words(seed, count), (word) => word % classes);
  return tensor(b, numbers, [count], "i32");
}
