/** The law of gradients fails for gradients that are slightly wrong, and holds for correct ones. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { tensor } from "../../../src/ops/create.js";
import { scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { differentiableOne } from "../../../src/tape/differentiable.js";
import type { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { derivatives, gridLeaf, gridValues } from "../harness/gradients.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const DRAWS = 20;

/** x·wᵀ: quadratic, so that central differences are exact. */
function product(x: Variable, w: Variable): Variable {
  return differentiableOne([x, w], () => {
    const [a, b] = [w.tensor, x.tensor];
    return {
      result: gemm({ a, b }).out,
      backward: (grad) => {
        const dy = grad as Tensor<"f32">;
        const products = [gemm({ a, b: dy, layout: "NN" }).out, gemm({ a: b, b: dy, layout: "NT" }).out];
        return products as Tensor<"f32">[];
      },
    };
  });
}

describe("the bound", () => {
  const [rows, columns] = [6, 6];
  type Alter = (grad: Float32Array) => Float32Array;
  /** Gradients that are slightly wrong. */
  const WRONG_GRADIENTS: Record<string, Alter> = {
    "1 % too large": (grad) => grad.map((g) => g * 1.01),
    "1 % too small": (grad) => grad.map((g) => g * 0.99),
    doubled: (grad) => grad.map((g) => 2 * g),
    negated: (grad) => grad.map((g) => -g),
    lost: (grad) => grad.map(() => 0),
    "of the row before": (grad) => grad.map((_, i) => grad.at(i - columns) as number),
    "of the column before": (grad) => grad.map((_, i) => grad.at(i - 1) as number),
    transposed: (grad) => grad.map((_, i) => grad[(i % columns) * rows + Math.floor(i / columns)] as number),
    "without one element": (grad) => grad.map((g, i) => (i === 7 ? 0 : g)),
    "with another sign of one element": (grad) => grad.map((g, i) => (i === 7 ? -g : g)),
    "without the last row": (grad) => grad.map((g, i) => (i < grad.length - columns ? g : 0)),
    "without its mean": (grad) => {
      const mean = grad.reduce((sum, g) => sum + g, 0) / grad.length;
      return grad.map((g) => g - mean);
    },
    "another's": (grad) => Float32Array.from(gridValues(5, grad.length)),
  };

  /** Returns the number of draws in which a derivative is rejected if the gradient of one leaf is altered. */
  function countRefusals(alteredLeaf: "x" | "weight" | "nothing", alter: Alter): number {
    const seeds = fc.sample(fc.noBias(fc.nat()), DRAWS);
    return seeds.filter((seed) => {
      using _scope = new Scope();
      const [x, weight] = [0, 1].map((i) => gridLeaf(backend(), seed + 5 + i, [rows, columns])) as [
        Variable,
        Variable,
      ];
      const withAlteredGradient = (leaf: Variable, name: string): Variable =>
        differentiableOne([leaf], () => ({
          result: scaled(leaf.tensor, 1),
          backward: (grad) => {
            if (name !== alteredLeaf) return [grad];
            const gradValues = (grad as Tensor<"f32">).dataSync();
            return [tensor(backend(), alter(gradValues.slice()), leaf.shape)];
          },
        }));
      const run = (): Variable => product(withAlteredGradient(x, "x"), withAlteredGradient(weight, "weight"));
      const comparisons = derivatives({ leaves: [x, weight], run }, seed);
      return comparisons.some(({ gradient, difference, bound }) => Math.abs(gradient - difference) > bound);
    }).length;
  }

  it.each(Object.entries(WRONG_GRADIENTS))("refuses a gradient %s", (_, alter) => {
    for (const alteredLeaf of ["x", "weight"] as const)
      expect(countRefusals(alteredLeaf, alter), alteredLeaf).toBeGreaterThanOrEqual(0.8 * DRAWS);
  });

  it("accepts the correct gradients", () => {
    expect(countRefusals("nothing", (grad) => grad)).toBe(0);
  });
});
