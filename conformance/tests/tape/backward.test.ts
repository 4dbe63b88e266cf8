/**
 * The backward pass through any graph visits each node once, in a topological order, and frees each gradient as soon as
 * it is not needed.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, DisposedError, DTypeError, LockstepError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { recompute } from "../../../src/modules/recompute.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { add, scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { differentiable, type VariableLike } from "../../../src/tape/differentiable.js";
import {
  captures,
  gradEnabled,
  gradTracked,
  noGrad,
  training,
  unrecorded,
  withGrad,
} from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import type { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { download } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import { draws } from "../harness/draws.js";
import { refusals, untyped } from "../harness/refusals.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();
const foreignBackend = useBackend();

/**
 * One node: the distance back to each of its inputs, and the weight of each input in the sum that all its results
 * equal.
 */
interface DrawnStep {
  readonly inputs: readonly { readonly back: number; readonly weight: number }[];
  readonly results: number;
}

const drawnStep: fc.Arbitrary<DrawnStep> = fc.record({
  inputs: fc.array(fc.record({ back: fc.nat(8), weight: fc.integer({ min: -2, max: 2 }) }), {
    minLength: 1,
    maxLength: 3,
  }),
  results: fc.integer({ min: 1, max: 2 }),
});

/** A value of the graph: a leaf, or result `result` of node `step`. */
interface Node {
  readonly variable: Variable;
  readonly step: number;
}

type Wide = Tensor<WideDType>;

/**
 * The weight times a gradient. For weight 1 it is the gradient itself, because custom operations may return the tensor
 * that they received.
 */
const times = (grad: Wide, weight: number): Wide => (weight === 1 ? grad : scaled(grad, weight));

it.each(WIDE_DTYPES)("begins with a gradient of 1 at a result of one element in %s", (dtype) => {
  for (const shape of [[], [1], [1, 1]]) {
    using _scope = new Scope();
    const leaf = new Variable(zeros(backend(), dtype, [3]), true);
    functional.reshape(functional.sum(leaf), shape).backward();
    expect(download(leaf.grad as Tensor)).toEqual(rounded(dtype, [3], [1, 1, 1]));
    leaf.zeroGrad();
  }
});

describe("the backward pass", () => {
  it("sums each leaf's gradient over all paths, and calls each node that leads to the root once, after all its consumers", () => {
    fc.assert(
      fc.property(
        fc.array(fc.boolean(), { minLength: 1, maxLength: 3 }),
        fc.array(drawnStep, { minLength: 1, maxLength: 9 }),
        (leaves, steps) => {
          using _scope = new Scope();
          const nodes: Node[] = leaves.map((requiresGrad) => ({
            variable: new Variable(tensor(backend(), [0, 0]), requiresGrad),
            step: -1,
          }));
          const createdNodes: {
            readonly from: readonly number[];
            readonly to: readonly number[];
            readonly required: boolean;
          }[] = [];
          const calls: number[] = [];
          for (const [index, { inputs, results }] of steps.entries()) {
            const from = inputs.map(({ back }) => Math.max(0, nodes.length - 1 - back));
            const variables = from.map((index) => (nodes[index] as Node).variable);
            const out = differentiable(variables, () => ({
              results: Array.from({ length: results }, () => tensor(backend(), [0, 0])),
              backward: (grads) => {
                calls.push(index);
                const arrivedGrads = grads.filter((grad) => grad !== undefined) as Wide[];
                const sum = arrivedGrads.slice(1).reduce((x, y) => add(x, y), arrivedGrads[0] as Wide);
                return inputs.map(({ weight }, i) =>
                  variables[i]?.requiresGrad ? times(sum, weight) : undefined,
                );
              },
            }));
            createdNodes.push({
              from,
              to: out.map((_, i) => nodes.length + i),
              required: variables.some((variable) => variable.requiresGrad),
            });
            nodes.push(...out.map((variable) => ({ variable, step: index })));
          }
          const root = nodes.at(-1) as Node;
          const grad = tensor(backend(), [1, 3]);
          if (!root.variable.requiresGrad) {
            expect(() => root.variable.backward(grad)).toThrow(ArgumentError);
            return;
          }
          // computes the expected gradients with plain numbers: visits the nodes in reverse and adds each node's
          // gradients to the gradients of its inputs
          const expected = nodes.map(() => 0);
          const reachedNodes = new Set([nodes.length - 1]);
          expected[nodes.length - 1] = 1;
          const order: number[] = [];
          for (const [index, { from, to, required }] of [...createdNodes.entries()].reverse()) {
            if (!required || !to.some((index) => reachedNodes.has(index))) continue;
            order.push(index);
            const sum = to.reduce((total, index) => total + (expected[index] as number), 0);
            for (const [i, nodeIndex] of from.entries()) {
              if (!nodes[nodeIndex]?.variable.requiresGrad) continue;
              expected[nodeIndex] =
                (expected[nodeIndex] as number) + sum * (steps[index]?.inputs[i]?.weight as number);
              reachedNodes.add(nodeIndex);
            }
          }
          root.variable.backward(grad);
          expect(calls).toEqual(order);
          expect(grad.disposed).toBe(false);
          for (const [index, { variable, step }] of nodes.entries()) {
            const gradient = variable.grad?.dataSync();
            if (step >= 0 || !reachedNodes.has(index)) expect(gradient).toBe(undefined);
            else
              expect([...(gradient as Float32Array)].map((x) => x + 0)).toEqual(
                [1, 3].map((factor) => factor * (expected[index] as number) + 0),
              );
          }
          // several leaves may share one gradient tensor; each frees its reference separately
          for (const { variable } of nodes) variable.zeroGrad();
        },
      ),
      { numRuns: draws(150) },
    );
  });

  const identity = (x: Variable, back: (grad: Wide) => Wide, watch: () => void): Variable => {
    const [y] = differentiable([x], () => ({
      results: [scaled(x.tensor, 1)],
      backward: ([grad]) => {
        watch();
        return [back(grad as Wide)];
      },
    }));
    return y as Variable;
  };
  const noOperation = (): void => undefined;
  /**
   * Functions that append nodes to a variable, and the number of gradients that each of these nodes keeps until the end of the
   * pass: the terms of sums.
   */
  const LINKS: Record<string, readonly [left: number, link: (x: Variable, watch: () => void) => Variable]> = {
    "makes a gradient": [0, (x, watch) => identity(x, (grad) => scaled(grad, 1), watch)],
    "passes on the gradient it got": [0, (x, watch) => identity(x, (grad) => grad, watch)],
    "adds one to the gradient it got": [
      1,
      (x, watch) => {
        const [y] = differentiable([x, x], () => ({
          results: [scaled(x.tensor, 1)],
          backward: ([grad]) => {
            watch();
            return [grad, scaled(grad as Tensor, 0.5)];
          },
        }));
        return y as Variable;
      },
    ],
    "gives one gradient to two steps": [
      2,
      (x, watch) => {
        const [firstResult, secondResult] = [1, 2].map(() =>
          identity(x, (grad) => scaled(grad, 1), noOperation),
        ) as [Variable, Variable];
        const [sum] = differentiable([firstResult, secondResult], () => ({
          results: [add(firstResult.tensor, secondResult.tensor)],
          backward: ([grad]) => {
            watch();
            return [grad, grad];
          },
        }));
        return sum as Variable;
      },
    ],
  };
  it.each(Object.entries(LINKS))(
    "needs the same memory at every link of a chain that %s",
    (_, [leftOperand, link]) => {
      using _scope = new Scope();
      const x = new Variable(tensor(backend(), [1, 2]), true);
      const blocks: number[] = [];
      const links = 12;
      let y = x;
      for (let i = 0; i < links; i++) y = link(y, () => blocks.push(backend().memoryUse().blocks));
      y.backward(tensor(backend(), [1, 1]));
      expect(blocks.map((block) => block - (blocks[1] as number)).slice(1)).toEqual(
        Array.from({ length: links - 1 }, (_, i) => leftOperand * i),
      );
      x.zeroGrad();
    },
  );

  it("adds to the gradients that leaves have, and leaves those of variables that it does not reach unchanged", () => {
    using _scope = new Scope();
    const [x, otherLeaf] = [1, 2].map(() => new Variable(tensor(backend(), [1, 2]), true)) as [
      Variable,
      Variable,
    ];
    for (const times of [1, 2, 3]) {
      identity(x, (grad) => grad, noOperation).backward(tensor(backend(), [1, 10]));
      expect(Array.from(x.grad?.dataSync() ?? [], Number)).toEqual([times, 10 * times]);
      expect(otherLeaf.grad).toBe(undefined);
    }
    x.zeroGrad();
  });
});

describe("noGrad, evaluation and the other modes", () => {
  const state = () => ({
    enabled: gradEnabled(),
    tracked: gradTracked(),
    training: training(),
    captures: captures() !== undefined,
  });
  const MODES = {
    outside: {
      run: <R>(body: () => R): R => body(),
      of: (outer: ReturnType<typeof state>) => outer,
    },
    noGrad: {
      run: noGrad,
      of: () => ({ enabled: false, tracked: false, training: false, captures: false }),
    },
    unrecorded: {
      run: <R>(body: () => R): R => unrecorded(new Set(), body),
      of: (outer: ReturnType<typeof state>) => ({
        enabled: false,
        tracked: true,
        training: outer.training,
        captures: true,
      }),
    },
    withGrad: {
      run: withGrad,
      of: () => ({ enabled: true, tracked: true, training: true, captures: false }),
    },
  };
  const names = Object.keys(MODES) as (keyof typeof MODES)[];
  it.each(names.flatMap((outer) => names.map((inner) => [inner, outer] as const)))(
    "%s in %s",
    (inner, outer) => {
      const defaultModes = { enabled: true, tracked: true, training: true, captures: false };
      expect(state()).toEqual(defaultModes);
      MODES[outer].run(() => {
        const outerModes = MODES[outer].of(defaultModes);
        expect(state()).toEqual(outerModes);
        MODES[inner].run(() => expect(state()).toEqual(MODES[inner].of(outerModes)));
        expect(state()).toEqual(outerModes);
      });
      expect(state()).toEqual(defaultModes);
    },
  );
});

const zero = (shape: readonly number[], dtype: "f32" | "bf16" = "f32"): Tensor =>
  zeros(backend(), dtype, shape);
const leaf = (): Variable => new Variable(zero([2, 3]), true);
const useGraph = (x: VariableLike, argument?: unknown): Variable => {
  const [y] = differentiable([x], () => ({
    results: [zero([2, 3])],
    backward: ([grad]) => [argument === undefined ? grad : untyped(argument)],
  }));
  return y as Variable;
};
const disposed = (): Tensor => {
  const disposedTensor = zero([2, 3]);
  disposedTensor.dispose();
  return disposedTensor;
};
const disposedQuantized = (): QuantizedTensor => {
  const quantizedTensor = new Float8CurrentScalingQuantizer().quantize(zero([2, 3]));
  quantizedTensor.dispose();
  return quantizedTensor;
};
const foreignTensor = (): Tensor => zeros(foreignBackend(), "f32", [2, 3]);
const failIfCalled = (): never => {
  throw new Error("forward was called");
};

it.each<[string, (x: Variable, y: Variable) => Variable]>([
  ["a part that is computed again from it", (x) => recompute((input) => useGraph(input), x)],
  ["a part that captures it", (x, y) => recompute((input) => functional.add(useGraph(x), input), y)],
  ["a step", (x) => useGraph(x)],
])("a leaf that was frozen after the forward pass gets no gradient, and keeps no memory, by %s", (_, run) => {
  using _scope = new Scope();
  const [x, y] = [leaf(), new Variable(zero([2, 3]))];
  const out = run(x, y);
  x.requiresGrad = false;
  out.backward(zero([2, 3]));
  expect([x.grad, y.grad, out.grad]).toEqual([undefined, undefined, undefined]);
});

it.each<[string, () => Tensor]>([
  ["on another backend", foreignTensor],
  ["of another shape", () => zero([3, 2])],
  ["of another type", () => zero([2, 3], "bf16")],
  ["of integers", () => zeros(backend(), "i32", [2, 3])],
  ["that is gone", disposed],
])("a gradient %s is refused before any backward function runs", (_, grad) => {
  using _scope = new Scope();
  const x = leaf();
  const y = useGraph(x);
  expect(() => y.backward(grad())).toThrow(LockstepError);
  y.backward(zero([2, 3]));
  expect(x.grad?.shape).toEqual([2, 3]);
  x.zeroGrad();
});

refusals("variables", [
  [
    "a gradient on another backend, which nothing is computed with",
    () => useGraph(leaf(), zero([2, 3])).backward(foreignTensor()),
    ArgumentError,
    ["backend"],
  ],
  ["no value", () => new Variable(untyped(undefined)), DTypeError, ["value"]],
  ["a number", () => new Variable(untyped(1)), DTypeError, ["value", "1"]],
  ["a disposed tensor", () => new Variable(disposed()), DisposedError, ["disposed"]],
  ["a disposed quantized tensor", () => new Variable(disposedQuantized()), DisposedError, ["disposed"]],
  ["requiresGrad 1", () => new Variable(zero([1]), untyped(1)), ArgumentError, ["requiresGrad", "1"]],
  ["inputs that are no list", () => differentiable(untyped(leaf()), failIfCalled), ArgumentError, ["inputs"]],
  ...[undefined, null, 1, "x", {}].flatMap((invalid) =>
    [[invalid], [leaf, invalid], [invalid, leaf]].map(
      (list) =>
        [
          `${String(invalid)} among ${list.length} inputs, at ${list.indexOf(invalid)}`,
          () =>
            differentiable(
              list.map((element) => untyped(element === leaf ? leaf() : element)),
              failIfCalled,
            ),
          ArgumentError,
          ["tensor or a variable"],
        ] as const,
    ),
  ),
  [
    "a hole among inputs",
    () => differentiable(Object.assign(new Array(3), [leaf()]), failIfCalled),
    ArgumentError,
    ["tensor or a variable"],
  ],
  ["no forward", () => differentiable([leaf()], untyped(undefined)), ArgumentError, ["forward"]],
  [
    "a gradient on another backend",
    () => useGraph(leaf()).backward(foreignTensor()),
    ArgumentError,
    ["backend"],
  ],
  [
    "a gradient of another type",
    () => useGraph(leaf()).backward(zero([2, 3], "bf16")),
    DTypeError,
    ["bf16", "f32"],
  ],
  [
    "a gradient of another shape",
    () => useGraph(leaf()).backward(zero([3, 2])),
    ShapeError,
    ["[3,2]", "[2,3]"],
  ],
  ["null for a gradient", () => useGraph(leaf()).backward(untyped(null)), DTypeError, ["grad", "null"]],
  [
    "a value that was disposed of",
    () => {
      const y = useGraph(leaf());
      (y.value as Tensor).dispose();
      y.backward(zero([2, 3]));
    },
    DisposedError,
    ["backward: what it computes with", "disposed"],
  ],
  ["a disposed gradient", () => useGraph(leaf()).backward(disposed()), DisposedError, ["disposed"]],
  [
    "a part on another backend",
    () => useGraph(leaf(), foreignTensor()).backward(zero([2, 3])),
    ArgumentError,
    ["backend"],
  ],
  [
    "a part of another shape",
    () => useGraph(leaf(), zero([3, 2])).backward(zero([2, 3])),
    ShapeError,
    ["[3,2]", "[2,3]"],
  ],
  [
    "a disposed quantized part",
    () => useGraph(leaf(), disposedQuantized()).backward(zero([2, 3])),
    DisposedError,
    ["disposed"],
  ],
  ["a disposed part", () => useGraph(leaf(), disposed()).backward(zero([2, 3])), DisposedError, ["disposed"]],
]);
