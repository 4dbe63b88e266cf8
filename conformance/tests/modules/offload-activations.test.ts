/** Calls whose activations are on the host until the backward pass: what is moved, when it is back, and what is refused. */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import { OutOfMemoryError } from "../../../src/errors.js";
import { multiply, sigmoid } from "../../../src/functional/elementwise.js";
import { Linear } from "../../../src/modules/linear.js";
import { type OffloadOptions, offloadActivations } from "../../../src/modules/offload-activations.js";
import { tensor } from "../../../src/ops/create.js";
import { scaled } from "../../../src/ops/elementwise/operators.gen.js";
import { captureGraph } from "../../../src/ops/graph.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { drawnTensor } from "../harness/drawn-tensor.js";
import { runWithFailure, useBackend } from "../harness/suite.js";
import { useRanks } from "./tensor-parallel/ranks.js";

const backend = useBackend();
const SIZE = 32;
/** The bytes of a [SIZE, SIZE] f32 tensor. */
const BYTES = 4 * SIZE * SIZE;
const ALL: OffloadOptions = { minBytes: 1 };

const leaf = (seed = 1): Variable => new Variable(drawnTensor(backend(), seed, [SIZE, SIZE], "f32"), true);
/** The number of tensors that have memory. */
const live = (): number => backend().memoryUse().blocks;

/** Runs the backward pass from `y` to the leaf `x`, and drops the gradient. */
function backward(y: Variable, x: Variable): void {
  y.backward(x.tensor);
  x.zeroGrad();
}

/** Two activation functions, so the first result is an activation that the second saves. */
const twice = (x: Variable): Variable => sigmoid(sigmoid(x));

/** The results of three calls, each of two activation functions. */
const threeCalls = (x: Variable): readonly Variable[] => {
  let y = x;
  return Array.from({ length: 3 }, () => {
    y = offloadActivations(() => twice(y), ALL);
    return y;
  });
};

describe("the activations of a call", () => {
  it("are moved, and inputs, results and small tensors are not", () => {
    using _ = new Scope();
    const x = leaf();
    const before = live();
    const y = offloadActivations(() => twice(x), ALL);
    expect(live() - before).toBe(1); // the result
    const z = offloadActivations(() => twice(y), { minBytes: BYTES + 1 });
    expect(live() - before).toBe(3);
    backward(z, x);
  });

  it("include the result of the call before", () => {
    using _ = new Scope();
    const x = leaf();
    const before = live();
    const y = offloadActivations(() => twice(x), ALL);
    const z = offloadActivations(() => twice(y), ALL);
    expect(live() - before).toBe(1);
    const kept = twice(twice(leaf()));
    expect(y.tensor.dataSync()).toEqual(twice(leaf()).tensor.dataSync());
    expect(z.tensor.dataSync()).toEqual(kept.tensor.dataSync());
    backward(z, x);
  });

  it("come back together at the first use of one, with those of the call before", () => {
    using _ = new Scope();
    const x = leaf();
    const before = live();
    const results = threeCalls(x);
    expect(live() - before).toBe(1);
    // the input of the third call comes back with the activation inside of it; those of the second are prefetched
    results[1]?.tensor.dataSync();
    expect(live() - before).toBe(5);
    results[0]?.tensor.dataSync();
    expect(live() - before).toBe(6);
  });

  it("come back together also if those of an earlier call were used before", () => {
    using _ = new Scope();
    const before = live();
    const results = threeCalls(leaf());
    results[0]?.tensor.dataSync(); // of the second call; those of the first are prefetched
    expect(live() - before).toBe(5);
    results[1]?.tensor.dataSync();
    expect(live() - before).toBe(7);
  });

  it("are moved in every step, also if a call had no backward pass", () => {
    using linear = new Linear(backend(), SIZE, SIZE, { dtype: "f32" });
    for (let step = 0; step < 3; step++) {
      using _ = new Scope();
      const x = leaf(step);
      const before = live();
      const y = offloadActivations(() => linear.forward(twice(x)), ALL);
      expect(live() - before).toBe(1);
      if (step !== 1) backward(y, x);
      for (const parameter of linear.parameters()) parameter.zeroGrad();
    }
  });

  it("stay if nothing is recorded", () => {
    using _ = new Scope();
    const x = leaf();
    const before = live();
    noGrad(() => offloadActivations(() => twice(x), ALL));
    expect(live() - before).toBe(2);
  });
});

it("a prefetch for which there is no memory leaves the use of a tensor as it is", () => {
  using _ = new Scope();
  const x = leaf();
  const results = threeCalls(x);
  const expected = twice(leaf()).tensor.dataSync();
  // the use of the first result moves back two tensors of the second call; the third allocation is of the first call
  const { error } = runWithFailure(backend(), 2, () => {
    expect(results[0]?.tensor.dataSync()).toEqual(expected);
  });
  expect(error).toBeUndefined();
  backward(results[2] as Variable, x);
});

describe("activations of a rank whose stream waits for another rank", () => {
  const groups = useRanks(2, "hopper");

  it("have the bits of those that stay", async () => {
    const train = (call: (body: () => Variable) => Variable) =>
      Promise.all(
        groups(2).map(async (group) => {
          using scope = new Scope();
          const ones = (value: number) => tensor(group.backend, new Float32Array(8).fill(value), [8]);
          const x = new Variable(ones(group.rank + 1), true);
          const factor = new Variable(group.allReduce(ones(1)));
          const y = call(() => {
            const product = multiply(x, factor);
            const square = multiply(product, product);
            return multiply(square, square);
          });
          y.backward(ones(1));
          scope.keep(y.tensor);
          scope.dispose();
          const values = [await y.tensor.data(), await x.grad?.data()];
          x.zeroGrad();
          y.tensor.dispose();
          return values;
        }),
      );
    const offloaded = await train((body) => offloadActivations(body, ALL));
    expect(offloaded).toEqual(await train((body) => body()));
  });
});

describe("a graph of the reference", () => {
  const capture = async (run: (backend: Backend) => void): Promise<void> => {
    const unguarded = await openBackend("wasm", { threads: 1 });
    try {
      using _ = new Scope();
      run(unguarded);
    } finally {
      await unguarded.dispose();
    }
  };
  const drawnLeaf = (of: Backend): Variable => new Variable(drawnTensor(of, 1, [SIZE, SIZE], "f32"), true);

  it("keeps the addresses of the activations that it uses", () =>
    capture((of) => {
      const hidden = sigmoid(drawnLeaf(of));
      const out = drawnTensor(of, 5, [SIZE, SIZE], "f32");
      using graph = captureGraph(of, () => void scaled(hidden.tensor, 2, { out }));
      const before = of.memoryUse().blocks;
      offloadActivations(() => sigmoid(hidden), ALL);
      expect(of.memoryUse().blocks - before).toBe(1);
      graph.replay();
      expect(out.dataSync()).toEqual(scaled(sigmoid(drawnLeaf(of)).tensor, 2).dataSync());
    }));

  it("is not captured with work that moves a tensor back", () =>
    capture((of) => {
      const hidden = sigmoid(drawnLeaf(of));
      offloadActivations(() => sigmoid(hidden), ALL);
      expect(() => captureGraph(of, () => void scaled(hidden.tensor, 2))).toThrow(
        /moved back from the host while a graph is captured/,
      );
      expect(hidden.tensor.dataSync()).toEqual(sigmoid(drawnLeaf(of)).tensor.dataSync());
    }));
});

it("an allocation that fails in the backward pass leaves activations that can be used", () => {
  using _ = new Scope();
  const x = leaf();
  const hidden = offloadActivations(() => twice(x), ALL);
  const y = offloadActivations(() => twice(hidden), ALL);
  const kept = live();
  const { error } = runWithFailure(backend(), 0, () => hidden.tensor.dataSync());
  expect(error).toBeInstanceOf(OutOfMemoryError);
  expect(live()).toBe(kept);
  expect(hidden.tensor.dataSync()).toEqual(twice(leaf()).tensor.dataSync());
  backward(y, x);
});

describe("offloadActivations refuses", () => {
  it.each([
    [undefined, {}, /body/],
    [async () => leaf(), {}, /async/],
    [() => undefined, {}, /body returned undefined; it must return a variable/],
    [() => [leaf(), undefined], {}, /body returned undefined; it must return a variable/],
    [() => 3, {}, /body returned 3; it must return a variable or an array of variables/],
    [() => leaf(), { minBytes: 0 }, /minBytes/],
  ])("%s with %j", (body, options, message) => {
    using _ = new Scope();
    expect(() => offloadActivations(body as never, options)).toThrow(message);
  });
});
