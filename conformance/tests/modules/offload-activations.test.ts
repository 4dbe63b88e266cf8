/** Calls whose activations are on the host until the backward pass: what is moved, when it is back, and what is refused. */
import { describe, expect, it } from "vitest";
import { OutOfMemoryError } from "../../../src/errors.js";
import { sigmoid } from "../../../src/functional/elementwise.js";
import { Linear } from "../../../src/modules/linear.js";
import { type OffloadOptions, offloadActivations } from "../../../src/modules/offload-activations.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { drawnTensor } from "../harness/drawn-tensor.js";
import { runWithFailure, useBackend } from "../harness/suite.js";

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
    const calls = [sigmoid, sigmoid, sigmoid];
    let y = x;
    const results = calls.map((call) => {
      y = offloadActivations(() => sigmoid(call(y)), ALL);
      return y;
    });
    expect(live() - before).toBe(1);
    // the input of the third call comes back with the activation inside of it; those of the second are prefetched
    results[1]?.tensor.dataSync();
    expect(live() - before).toBe(5);
    results[0]?.tensor.dataSync();
    expect(live() - before).toBe(6);
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
    [() => 3, {}, /body returned 3; it must return a variable or an array of variables/],
    [() => leaf(), { minBytes: 0 }, /minBytes/],
  ])("%s with %j", (body, options, message) => {
    using _ = new Scope();
    expect(() => offloadActivations(body as never, options)).toThrow(message);
  });
});
