/** Weights of `fullyShard` with rowwise codes only give the same results as weights with both copies. */
import { expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { Linear } from "../../../../src/modules/linear.js";
import { quantizedModelInit } from "../../../../src/modules/quantized-init.js";
import { fullyShard } from "../../../../src/parallel/fsdp/fully-shard.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { upload } from "../../../values/plain.js";
import { useBackends } from "../../harness/ranks/backends.js";
import { DETERMINISTIC_RECIPES, drawnValues } from "../../harness/recipes.js";

const RANKS = 2;
const SIZE = 256;
const backends = useBackends(RANKS);

async function run(recipeName: string, rowwise: boolean): Promise<unknown> {
  const groups = loopbackOver(backends);
  return Promise.all(
    groups.map(async (group) => {
      const b = group.backend;
      const recipe = DETERMINISTIC_RECIPES[recipeName]?.() as Recipe;
      const create = () =>
        quantizedModelInit({ recipe }, () => new Linear(b, SIZE, SIZE, { random: new RandomState(1n) }));
      const layer = rowwise ? noGrad(create) : create();
      const tensors: Tensor[] = [];
      {
        using scope = new Scope();
        fullyShard(layer, group, { rowMultiple: 128 });
        for (let step = 0; step < 2; step++) {
          const x = new Variable(upload(b, drawnValues(1 + step, [32, SIZE])), true);
          const y = autocast({ recipe }, () => layer.forward(x));
          y.backward(upload(b, drawnValues(5 + step, [32, SIZE])));
          tensors.push(scope.keep(y.tensor), x.grad as Tensor);
        }
      }
      const bits: unknown[] = [];
      for (const tensor of [...tensors, layer.weight.grad as Tensor])
        bits.push(Array.from((await tensor.data()) as Uint16Array));
      for (const tensor of tensors) tensor.dispose();
      layer.dispose();
      return bits;
    }),
  );
}

it.each(["delayed", "current", "block", "nvfp4"])("under %s", async (recipe) => {
  expect(await run(recipe, true)).toEqual(await run(recipe, false));
});
