/** Attention divided by heads equals the composition of divided linear layers and attention of some of the heads. */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { ArgumentError } from "../../../../src/errors.js";
import * as functional from "../../../../src/functional/index.js";
import type { MultiheadAttentionOptions } from "../../../../src/modules/attention/multihead-options.js";
import { Linear } from "../../../../src/modules/linear.js";
import { MultiheadAttention } from "../../../../src/modules/multihead-attention.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { MXFP8BlockScaling } from "../../../../src/recipes/block-scaled.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { waves } from "../attention/drawn.js";
import { useRanks } from "../tensor-parallel/ranks.js";

const [RANKS, LENGTH, BATCH, HIDDEN, HEADS] = [2, 16, 2, 64, 4];
const WIDTH = HIDDEN / HEADS;
const groups = useRanks(RANKS, "hopper", 1000);

const CASES: readonly (readonly [string, MultiheadAttentionOptions, Recipe | undefined])[] = [
  ["separate weights", {}, undefined],
  ["fused weights in groups", { fuseQkvParams: true, numGqaGroups: 2 }, new MXFP8BlockScaling()],
  ["dropout", { fuseQkvParams: true, attentionDropout: 0.3 }, undefined],
];

/** The results and gradients of one rank: of the module, and of its composition. */
function onRank(group: ProcessGroup, options: MultiheadAttentionOptions, recipe: Recipe | undefined) {
  const { backend } = group;
  const { numGqaGroups: allGroups = HEADS, fuseQkvParams = false, attentionDropout = 0 } = options;
  const heads = HEADS / RANKS;
  const keys = allGroups / RANKS;
  const sharedOptions = () => ({ group, random: new RandomState(3n) });
  const module = new MultiheadAttention(backend, HIDDEN, HEADS, {
    attentionDropout: 0,
    ...options,
    ...sharedOptions(),
  });
  const ownModule = sharedOptions();
  const features = (HEADS + 2 * allGroups) * WIDTH;
  const pieces = fuseQkvParams ? 1 : 3;
  const firstLinear = new Linear(backend, HIDDEN, features, { ...ownModule, parallelMode: "column", pieces });
  const proj = new Linear(backend, HIDDEN, HIDDEN, { ...ownModule, parallelMode: "row" });
  const { offset } = ownModule.random;
  const byHand = (x: Variable): Variable => {
    const projectedInput = firstLinear.forward(x);
    const share = heads / keys;
    const shape = fuseQkvParams ? [keys, share + 2, WIDTH] : [3, keys, WIDTH];
    const splitProjection = functional.reshape(projectedInput, [LENGTH, BATCH, ...shape]);
    const dim = fuseQkvParams ? 3 : 2;
    const columnsOf = (begin: number, end: number, count: number): Variable =>
      functional.reshape(functional.slice(splitProjection, dim, begin, end), [LENGTH, BATCH, count, WIDTH]);
    const out = functional.attention(
      columnsOf(0, share, heads),
      columnsOf(share, share + 1, keys),
      columnsOf(share + 1, share + 2, keys),
      {
        layout: "sbhd",
        causal: true,
        ...(attentionDropout > 0
          ? {
              dropout: {
                ...{ probability: attentionDropout, seed: 3n, offset },
                ...{ allHeads: HEADS, firstHead: group.rank * heads },
              },
            }
          : {}),
      },
    );
    return proj.forward(functional.reshape(out, [LENGTH, BATCH, heads * WIDTH]));
  };
  const run = (body: (x: Variable) => Variable) => {
    const x = new Variable(waves(backend, 1, [LENGTH, BATCH, HIDDEN]), true);
    const out = recipe ? autocast({ recipe }, () => body(x)) : body(x);
    out.backward(waves(backend, 2, out.shape));
    return [out.tensor, x.grad as Tensor];
  };
  const results = [run((x) => module.forward(x)), run(byHand)];
  const gradients = [module.parameters(), [...firstLinear.parameters(), ...proj.parameters()]].map((list) =>
    list.map(({ grad }) => grad as Tensor),
  );
  const dispose = () => {
    for (const result of results) result[1]?.dispose();
    for (const layer of [module, firstLinear, proj]) layer.dispose();
  };
  return {
    own: [...(results[0] ?? []), ...(gradients[0] ?? [])],
    hand: [...(results[1] ?? []), ...(gradients[1] ?? [])],
    dispose,
  };
}

describe("attention divided by heads", () => {
  it.each(CASES)("%s: is the composition of divided layers", async (_name, options, recipe) => {
    using _ = new Scope();
    const ranks = groups(RANKS).map((group) => onRank(group, options, recipe));
    for (const { own: ownParameters, hand } of ranks) {
      expect(ownParameters.length).toBe(hand.length);
      for (const [i, parameter] of ownParameters.entries())
        expect([...(await parameter.data())], `tensor ${i}`).toEqual([...(await (hand[i] as Tensor).data())]);
    }
    for (const { dispose } of ranks) dispose();
  });

  it("refuses heads that ranks cannot share, and rows whose dropout they would not", () => {
    const [group] = groups(RANKS) as [ProcessGroup];
    const make = (options: MultiheadAttentionOptions) =>
      new MultiheadAttention(group.backend, HIDDEN, HEADS, { group, ...options });
    expect(() => make({ numGqaGroups: 1 })).toThrow("not divisible among 2 ranks");
    expect(() => make({ numGqaGroups: 2 })).toThrow("fuseQkvParams");
    const sequence = { group, sequenceParallel: true };
    expect(() => new TransformerLayer(group.backend, HIDDEN, HIDDEN, HEADS, sequence)).toThrow(ArgumentError);
  });
});
