/** Parameters are brought one operation ahead. A failure to bring them is one of the operation that needs them, if it runs. */
import { describe, expect, it } from "vitest";
import { loopbackGroup } from "../../../../src/distributed/loopback/loopback.js";
import { OutOfMemoryError } from "../../../../src/errors.js";
import { Linear } from "../../../../src/modules/linear.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { zeros } from "../../../../src/ops/create.js";
import { fullyShard } from "../../../../src/parallel/fully-shard.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { failingAt } from "../../harness/suite.js";

/** Three layers whose parameters are divided, and the exchanges of a pass in each of them. */
async function watched() {
  const [group] = await loopbackGroup(1);
  if (!group) throw new Error("there is no rank");
  const { backend } = group;
  const options = { dtype: "f32", random: new RandomState(1n) } as const;
  const layers = [1, 2, 3].map(() => new Linear(backend, 32, 32, options));
  const net = new Sequential(backend, ...layers);
  fullyShard(net, group);
  const x = zeros(backend, "f32", [4, 32]);
  let exchanges = 0;
  const gather = group.allGatherCoalesced.bind(group);
  group.allGatherCoalesced = (requests) => {
    exchanges++;
    return gather(requests);
  };
  const pass = (): readonly number[] => {
    using _ = new Scope();
    const begun = exchanges;
    let value: Parameters<Linear["forward"]>[0] = x;
    return noGrad(() =>
      layers.map((layer) => {
        value = layer.forward(value);
        return exchanges - begun;
      }),
    );
  };
  const forget = (): void => {
    for (const parameter of net.parameters()) parameter.zeroGrad();
  };
  // two passes in which it learns which layer comes next
  const once = (): readonly number[] => {
    const [, , third] = [pass(), pass(), pass()];
    forget();
    return third;
  };
  return { backend, group, layers, net, x, once, forget };
}

describe("what is brought ahead", () => {
  it("may fail for want of memory wherever that is asked for, and is brought again as soon as the order is known", async () => {
    const { backend, once, forget } = await watched();
    const usual = once();
    const before = backend.memoryUse();
    let refused = 0;
    for (let failing = 0; failing < 60; failing++) {
      const { error, asked } = failingAt(backend, failing, once);
      if (error !== undefined) expect(error).toBeInstanceOf(OutOfMemoryError);
      if (asked > failing) refused++;
      forget();
      expect([failing, backend.memoryUse().live]).toEqual([failing, before.live]);
      expect([failing, once()]).toEqual([failing, usual]);
    }
    expect(refused).toBeGreaterThan(20);
  });

  it("is not needed by an operation that runs instead of the expected one", async () => {
    const { backend, group, layers, net, x, once } = await watched();
    once();
    const [first, ...others] = layers as [Linear, ...Linear[]];
    for (const other of others) other.dispose();
    for (let i = 0; i < 3; i++) {
      using _ = new Scope();
      expect(noGrad(() => first.forward(x)).value.shape).toEqual([4, 32]);
    }
    for (const each of [first, x]) each.dispose();
    expect(net.parameters()).toHaveLength(6);
    expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
    await group.dispose();
  });
});
