/**
 * A group detects ranks that exchange different parameters of equal dtype and shape, or different parts of a parameter, and
 * throws.
 */
import { describe, expect, it } from "vitest";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { ArgumentError, DistributedError } from "../../../../src/errors.js";
import * as functional from "../../../../src/functional/index.js";
import { Linear } from "../../../../src/modules/linear.js";
import { Sequential } from "../../../../src/modules/sequential.js";
import { zeros } from "../../../../src/ops/create.js";
import { broadcastParameters, DataParallel } from "../../../../src/parallel/data/data-parallel.js";
import { fullyShard } from "../../../../src/parallel/fsdp/fully-shard.js";
import { Pipeline } from "../../../../src/parallel/pipeline/pipeline.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { useRanks } from "../../modules/tensor-parallel/ranks.js";

const groups = useRanks(2, "exact", 1000);

interface Layers {
  readonly group: ProcessGroup;
  readonly firstLayer: Linear;
  readonly secondLayer: Linear;
  readonly net: Sequential;
}

const layersOf = (group: ProcessGroup): Layers => {
  const [firstLayer, secondLayer] = [1, 2].map(() => new Linear(group.backend, 8, 8)) as [Linear, Linear];
  return { group, firstLayer, secondLayer, net: new Sequential(group.backend, firstLayer, secondLayer) };
};

/** Requires that `body` or the next call throws on every rank, with a disagreement on at least one. */
async function disagreements(body: (layers: Layers) => unknown): Promise<void> {
  const ranks = groups(2).map(layersOf);
  const failures = ranks.map((layers): unknown => {
    using _ = new Scope();
    try {
      body(layers);
    } catch (error) {
      return error;
    }
    return undefined;
  });
  const ends = await Promise.all(
    ranks.map(({ group }, rank) => failures[rank] ?? group.barrier().catch((error: unknown) => error)),
  );
  for (const end of ends) expect(end).toBeInstanceOf(DistributedError);
  expect(ends.map((end) => (end as DistributedError).failure)).toContain("disagreement");
  for (const { net } of ranks) {
    net.dispose();
  }
}

const run = ({ group, net }: Layers): void => {
  const x = new Variable(zeros(group.backend, "bf16", [4, 8]));
  net.forward(x).backward(zeros(group.backend, "bf16", [4, 8]));
};

describe("ranks disagree", () => {
  it("where DataParallel reduces gradients of different layers", () =>
    disagreements((layers) => {
      const { group, firstLayer, secondLayer, net } = layers;
      new DataParallel(net, group, { bucketBytes: 1 });
      const frozenLayer = group.rank === 0 ? firstLayer : secondLayer;
      for (const parameter of frozenLayer.parameters()) parameter.requiresGrad = false;
      run(layers);
    }));

  it("where a backward pass that has reduced some gradients fails on one of them and begins again", () =>
    disagreements((layers) => {
      const { group, firstLayer, net } = layers;
      new DataParallel(net, group, { bucketBytes: 1 });
      if (group.rank === 1) {
        const { remove } = firstLayer.weight.registerPostAccumulateGradHook(() => {
          throw new Error("of this test");
        });
        expect(() => run(layers)).toThrow("of this test");
        remove();
        for (const parameter of net.parameters()) parameter.zeroGrad();
      }
      run(layers);
    }));

  it("where fullyShard gathers the parameters of different layers", () =>
    disagreements(({ group, firstLayer, secondLayer, net }) => {
      fullyShard(net, group);
      const x = zeros(group.backend, "bf16", [4, 8]);
      const order = group.rank === 0 ? [firstLayer, secondLayer] : [secondLayer, firstLayer];
      noGrad(() => {
        for (const layer of order) layer.forward(x);
      });
    }));

  it("where stages of a pipeline run other numbers of microbatches", () =>
    disagreements(({ group, firstLayer }) => {
      const pipeline = new Pipeline(firstLayer, group, {
        microbatches: 2 + 2 * group.rank,
        input: { shape: [4, 8] },
        loss: (output) => functional.mseLoss(output, zeros(group.backend, "bf16", [4, 8])),
      });
      // as many microbatches in two steps as in one
      for (let step = 0; step < 2 - group.rank; step++)
        pipeline.step(() => zeros(group.backend, "bf16", [4, 8]));
    }));

  it("where one attends under the causal mask", () =>
    disagreements(({ group }) => {
      const x = new Variable(zeros(group.backend, "bf16", [1, 4, 1, 8]));
      const causal = group.rank === 0;
      functional.attention(x, x, x, { causal, cpGroup: group, cpCommType: "all_gather", datapath: "hopper" });
    }));

  it("where parts of tensor parallelism would be overwritten by parts of another rank", () =>
    disagreements(({ group }) => {
      using layer = new Linear(group.backend, 8, 8, { group, parallelMode: "column" });
      broadcastParameters(layer, group);
    }));
});

it("broadcastParameters refuses parameters that fullyShard has divided", () => {
  for (const group of groups(2)) {
    const { net } = layersOf(group);
    broadcastParameters(net, group);
    fullyShard(net, group);
    expect(() => broadcastParameters(net, group)).toThrow(ArgumentError);
    net.dispose();
  }
});
