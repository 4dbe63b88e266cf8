/**
 * Where a GPU waits for the reduction of gradients: only in an optimizer, before it updates the parameter. The backward pass
 * releases each gradient when it passes it on, so it frees no memory that is still being sent.
 */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  AdamW,
  autocast,
  DataParallel,
  DelayedScaling,
  empty,
  Float8BlockScaling,
  Float8CurrentScaling,
  fullyShard,
  LayerNormMLP,
  type Module,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
  type ProcessGroup,
  type Recipe,
  Scope,
  Sequential,
  Variable,
} from "../../../src/index.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { elementCount, type Shape } from "../../../src/tensor/shape.js";
import { sampleCases } from "../harness/draws.js";
import { type WatchedGroup, watchedGroup } from "../modules/tensor-parallel/side-work.js";

const [ROWS, FEATURES, HIDDEN, LAYERS] = [32, 64, 128, 3];

const WAYS: Readonly<Record<string, (model: Module, group: ProcessGroup) => unknown>> = {
  "DataParallel, a bucket for each weight": (model, group) =>
    new DataParallel(model, group, { bucketBytes: 4096 }),
  "DataParallel, one bucket": (model, group) => new DataParallel(model, group),
  fullyShard: (model, group) => fullyShard(model, group),
};

const RECIPES: readonly (readonly [string, Recipe | undefined])[] = [
  ["bf16", undefined],
  ["current scaling", new Float8CurrentScaling()],
  ["delayed scaling", new DelayedScaling()],
  ["block FP8", new Float8BlockScaling()],
  ["MXFP8", new MXFP8BlockScaling()],
  ["NVFP4", new NVFP4BlockScaling()],
];

describe("a backward pass that reduces gradients", () => {
  let watchedRanks: WatchedGroup;
  beforeEach(async () => {
    watchedRanks = await watchedGroup();
  });
  afterEach(() => watchedRanks.dispose());

  it.each(sampleCases(Object.keys(WAYS), 1))("does not wait for a reduction: %s", (wayName) => {
    const { group, record } = watchedRanks;
    const { backend } = group;
    using _ = new Scope();
    const layers = Array.from(
      { length: LAYERS },
      () => new LayerNormMLP(backend, FEATURES, HIDDEN, { bias: false }),
    );
    using model = new Sequential(backend, ...layers);
    WAYS[wayName]?.(model, group);
    using optimizer = new AdamW(model, { learningRate: 1e-3 });
    const x = empty(backend, "bf16", [ROWS, FEATURES]).write(new Uint16Array(ROWS * FEATURES).fill(0x3f80));
    for (let step = 0; step < 2; step++) {
      const input = new Variable(x, true);
      const y = model.forward(input);
      record.length = 0;
      y.backward(x);
      const backward = record.splice(0);
      expect(backward.filter((call) => call === "wait for a free")).toEqual([]);
      expect(backward).toContain(wayName === "fullyShard" ? "side reduceScatter" : "side allReduce");
      optimizer.step();
      expect(record).toContain("wait for a use by adamw");
      optimizer.zeroGrad();
      input.zeroGrad();
    }
  });

  it("exchanges 25 MiB or more alone: a gradient so that it is not copied, a weight so that the first comes first", () => {
    const { group, record } = watchedRanks;
    const { backend } = group;
    using _ = new Scope();
    const init = (_random: unknown, shape: Shape) => new Float32Array(elementCount(shape)).fill(2 ** -6);
    const methods = { initMethod: init, outputLayerInitMethod: init };
    using layer = new LayerNormMLP(backend, 2048, 3264, { bias: false, dtype: "f32", ...methods });
    fullyShard(layer, group);
    const x = empty(backend, "f32", [1, 2048]).write(new Float32Array(2048).fill(1));
    const exchanges = (op: string): readonly string[] => record.filter((call) => call === `side ${op}`);
    layer.forward(new Variable(x, true)).backward(x);
    // one reduction for each weight, and one for the norm's parameters together
    expect(exchanges("reduceScatter")).toHaveLength(3);
    record.length = 0;
    noGrad(() => layer.forward(x));
    // both weights, one after the other, the norm's parameters with the first
    expect(exchanges("allGather")).toHaveLength(2);
  });

  it.each(sampleCases(RECIPES, 1))(
    "waits once in each operation, for the weights gathered for it: %s",
    (_name, recipe) => {
      const { group, record } = watchedRanks;
      const { backend } = group;
      using _ = new Scope();
      const layers = [1, 2].map(() => new LayerNormMLP(backend, 256, 512, { bias: false }));
      using model = new Sequential(backend, ...layers);
      fullyShard(model, group, { rowMultiple: 128 });
      using optimizer = new AdamW(model, { learningRate: 1e-3 });
      const x = empty(backend, "bf16", [128, 256]).write(new Uint16Array(128 * 256).fill(0x3f80));
      const takeWaits = (): number => record.splice(0).filter((call) => call.startsWith("wait")).length;
      for (let step = 0; step < 4; step++) {
        const input = new Variable(x, true);
        record.length = 0;
        const y = autocast({ recipe, enabled: recipe !== undefined }, () => model.forward(input));
        const forward = takeWaits();
        y.backward(x);
        // the order of both passes is recorded, so the first operation of the backward pass is predicted
        if (step > 1) expect([forward, takeWaits()]).toEqual([2, 2]);
        optimizer.step();
        optimizer.zeroGrad();
        input.zeroGrad();
      }
    },
  );
});
