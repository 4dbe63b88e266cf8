/**
 * Prefetch of sharded parameters by layers that also divide them. A failure is thrown by the operation that needs them, if it
 * runs.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../../src/autocast.js";
import { loopbackGroup } from "../../../../../src/collectives/loopback/loopback.js";
import { OutOfMemoryError } from "../../../../../src/errors.js";
import { Linear } from "../../../../../src/modules/linear.js";
import { Sequential } from "../../../../../src/modules/sequential.js";
import { zeros } from "../../../../../src/ops/create.js";
import { fullyShard } from "../../../../../src/parallel/fsdp/fully-shard.js";
import { RandomState } from "../../../../../src/quantizers/random-state.js";
import { Float8CurrentScaling } from "../../../../../src/recipes/per-tensor.js";
import { noGrad } from "../../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../../src/tape/variable.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import { runWithFailure } from "../../../harness/suite.js";

/** Three layers with divided parameters, and a function that counts the gathers of each run. */
async function createSharded({ bias }: { readonly bias: boolean }) {
  const [group] = await loopbackGroup(1);
  if (!group) throw new Error("there is no rank");
  const { backend } = group;
  const options = { dtype: "f32", random: new RandomState(1n), bias } as const;
  const layers = [1, 2, 3].map(() => new Linear(backend, 32, 32, options));
  const net = new Sequential(backend, ...layers);
  fullyShard(net, group);
  let gathers = 0;
  const gather = group.allGatherCoalesced.bind(group);
  group.allGatherCoalesced = (requests) => {
    gathers++;
    return gather(requests);
  };
  const countOperations = <R>(body: () => R): [R, number] => {
    const begun = gathers;
    return [body(), gathers - begun];
  };
  const forget = (): void => {
    for (const parameter of net.parameters()) parameter.zeroGrad();
  };
  return { group, backend, layers, net, counted: countOperations, forget };
}

/** Three layers, and the gathers of a pass in each of them. */
async function createWatched() {
  const shardedModule = await createSharded({ bias: true });
  const { backend, layers, counted: countOperations, forget } = shardedModule;
  const x = zeros(backend, "f32", [4, 32]);
  const pass = (): readonly number[] => {
    using _ = new Scope();
    let value: Parameters<Linear["forward"]>[0] = x;
    let gathers = 0;
    return noGrad(() =>
      layers.map((layer) => {
        const [next, ownEvents] = countOperations(() => layer.forward(value));
        value = next;
        gathers += ownEvents;
        return gathers;
      }),
    );
  };
  // two passes, in which the order of the layers is recorded
  const once = (): readonly number[] => {
    const [, , thirdPass] = [pass(), pass(), pass()];
    forget();
    return thirdPass;
  };
  return { ...shardedModule, x, once };
}

/** The numbers of gathers in the forward and in the backward pass of three layers. */
async function createStep(recipe?: Float8CurrentScaling) {
  const { backend, net, counted: countOperations, forget } = await createSharded({ bias: false });
  const x = new Variable(zeros(backend, "f32", [16, 32]), true);
  const forward = () =>
    countOperations(() => autocast({ recipe, enabled: recipe !== undefined }, () => net.forward(x)));
  const step = (action: () => void = () => {}): readonly number[] => {
    using _ = new Scope();
    const [y, forwardEvents] = forward();
    action();
    const [, backwardEvents] = countOperations(() => y.backward(zeros(backend, "f32", [16, 32])));
    x.zeroGrad();
    forget();
    return [forwardEvents, backwardEvents];
  };
  return { backend, forward, step };
}

describe("the prefetch at the end of the forward pass", () => {
  it.each([["f32", undefined] as const, ["current scaling", new Float8CurrentScaling()] as const])(
    "with %s gathers the weights of the backward pass's first function while the last forward function runs",
    async (_name, recipe) => {
      const { backend, step } = await createStep(recipe);
      expect(step()).toEqual([3, 3]);
      expect(step()).toEqual([4, 2]);
      const { live } = backend.memoryUse();
      expect(step()).toEqual([4, 2]);
      expect(backend.memoryUse().live).toBe(live);
    },
  );

  it("is nothing for a backward pass where none is expected, or it began with another function", async () => {
    const { backend, forward, step } = await createStep();
    const evaluate = (): void => {
      using _ = new Scope();
      expect(noGrad(forward)[1]).toBe(3);
    };
    for (let i = 0; i < 2; i++) step();
    const { live } = backend.memoryUse();
    evaluate();
    expect(step()).toEqual([4, 2]);
    expect(step(evaluate)).toEqual([4, 3]);
    expect(step()).toEqual([3, 3]);
    expect(step()).toEqual([4, 2]);
    expect(backend.memoryUse().live).toBe(live);
  });

  it("may run out of memory at any allocation: all memory is freed, and the next step prefetches again", async () => {
    const { backend, once, forget } = await createWatched();
    const usual = once();
    const useBefore = backend.memoryUse();
    let refusalCount = 0;
    for (let failingAllocation = 0; failingAllocation < 60; failingAllocation++) {
      const { error, allocations: allocationCount } = runWithFailure(backend, failingAllocation, once);
      if (error !== undefined) expect(error).toBeInstanceOf(OutOfMemoryError);
      if (allocationCount > failingAllocation) refusalCount++;
      forget();
      expect([failingAllocation, backend.memoryUse().live]).toEqual([failingAllocation, useBefore.live]);
      expect([failingAllocation, once()]).toEqual([failingAllocation, usual]);
    }
    expect(refusalCount).toBeGreaterThan(20);
  });

  it("is not needed by an operation that runs instead of the expected one", async () => {
    const { backend, group, layers, net, x, once } = await createWatched();
    once();
    const [firstLayer, ...otherLayers] = layers as [Linear, ...Linear[]];
    for (const layer of otherLayers) layer.dispose();
    for (let i = 0; i < 3; i++) {
      using _ = new Scope();
      expect(noGrad(() => firstLayer.forward(x)).value.shape).toEqual([4, 32]);
    }
    for (const disposable of [firstLayer, x]) disposable.dispose();
    expect(net.parameters()).toHaveLength(6);
    expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
    await group.dispose();
  });
});
