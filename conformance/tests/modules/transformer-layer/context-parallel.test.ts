/** A layer whose positions are divided among ranks gives each rank its rows of one rank's results and gradients of inputs. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { Backend } from "../../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import type { TransformerLayerOptions } from "../../../../src/modules/attention/transformer-options.js";
import { RotaryPositionEmbedding } from "../../../../src/modules/rotary-position-embedding.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { Float8BlockScaling, MXFP8BlockScaling } from "../../../../src/recipes/block-scaled.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { fill, waves } from "../attention/drawn.js";
import { useRanks } from "../tensor-parallel/ranks.js";

const groups = useRanks(2, "hopper", 1000);
const [LENGTH, BATCH, HIDDEN, HEADS] = [32, 2, 64, 4];

const RECIPES = {
  none: () => undefined,
  block: () => new Float8BlockScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
};

/** Options of layers, and whether they read another tensor. */
const FORMS: Readonly<Record<string, TransformerLayerOptions>> = {
  "neighbours pass keys on": { numGqaGroups: 2, cpCommType: "p2p", qkNormType: "RMSNorm" },
  "all ranks gather keys": { softmaxType: "learnable", windowSize: [5, 0], cpCommType: "all_gather" },
  "ranks exchange heads": { numGqaGroups: 2, attentionDropout: 0.2, cpCommType: "a2a" },
  "a decoder": { layerType: "decoder", cpCommType: "p2p", attentionDropout: 0 },
};

const CASES = Object.keys(FORMS).flatMap((form) =>
  (Object.keys(RECIPES) as (keyof typeof RECIPES)[]).map((recipe) => [form, recipe] as const),
);

/** The rows of a rank of all positions: [LENGTH, BATCH, HIDDEN] by default. */
function rowsOf(b: Backend, seed: number, rank: number, ranks: number): Tensor {
  const rows = LENGTH / ranks;
  return waves(b, seed, [LENGTH, BATCH, HIDDEN]).slice(rank * rows * BATCH * HIDDEN, [rows, BATCH, HIDDEN]);
}

function run(
  b: Backend,
  options: TransformerLayerOptions,
  recipeName: keyof typeof RECIPES,
  cpGroup?: ProcessGroup,
): readonly Tensor[] {
  using scope = new Scope();
  const [rank, ranks] = [cpGroup?.rank ?? 0, cpGroup?.size ?? 1];
  using layer = new TransformerLayer(b, HIDDEN, 128, HEADS, {
    ...{ hiddenDropout: 0, attentionDropout: 0, random: new RandomState(3n), ...options },
    ...(cpGroup ? { cpGroup } : {}),
  });
  fill(5, layer);
  const isDecoder = options.layerType === "decoder";
  const rotaryPosEmb = new RotaryPositionEmbedding(b, HIDDEN / HEADS).forward(LENGTH);
  const [x, memory] = [1, 2].map((seed) => new Variable(rowsOf(b, seed, rank, ranks), true)) as [
    Variable,
    Variable,
  ];
  const recipe = RECIPES[recipeName]();
  const forward = () => layer.forward(x, { rotaryPosEmb, ...(isDecoder ? { encoderOutput: memory } : {}) });
  const out = recipe ? autocast({ recipe }, forward) : forward();
  out.backward(rowsOf(b, 3, rank, ranks));
  const keptTensors = [out.tensor, x.grad, isDecoder ? memory.grad : undefined].flatMap((tensor) =>
    tensor ? [scope.keep(tensor.clone())] : [],
  );
  for (const variable of [x, memory]) variable.zeroGrad();
  return keptTensors;
}

describe("a transformer layer on positions divided among ranks", () => {
  it.each(CASES)("%s, recipe %s: has the rows of one rank", async (form, recipe) => {
    const options = FORMS[form] as TransformerLayerOptions;
    const rankGroups = groups(2);
    const wholeResults = run((rankGroups[0] as ProcessGroup).backend, options, recipe);
    const ranks = rankGroups.map((group) => run(group.backend, options, recipe, group));
    for (const [i, tensor] of wholeResults.entries()) {
      const expected = [...(await tensor.data())];
      const rowsPerRank = expected.length / ranks.length;
      for (const [rank, result] of ranks.entries())
        expect([...(await (result[i] as Tensor).data())], `tensor ${i} of rank ${rank}`).toEqual(
          expected.slice(rank * rowsPerRank, (rank + 1) * rowsPerRank),
        );
    }
    for (const tensor of [wholeResults, ...ranks].flat()) tensor.dispose();
  });

  it("refuses options that draw a random number for each element of all rows", () => {
    const [group] = groups(2) as [ProcessGroup];
    for (const division of [{ cpGroup: group }, { group, sequenceParallel: true }])
      for (const options of [{}, { hiddenDropout: 0, dropPathRate: 0.1 }])
        expect(
          () => new TransformerLayer(group.backend, HIDDEN, 128, HEADS, { ...division, ...options }),
        ).toThrow("give 0 for both");
  });
});
