/** The default recipe: MXFP8 if the chip multiplies it, else delayed scaling. */
import { afterEach, describe, expect, it } from "vitest";
import { currentRegion } from "../../../src/autocast.js";
import { DATAPATH_FAMILIES } from "../../../src/formats/datapath.js";
import {
  autocast,
  autocastScope,
  type Backend,
  checkRecipeSupport,
  DelayedScaling,
  getDefaultRecipe,
  Linear,
  MXFP8BlockScaling,
  noGrad,
  openBackend,
  RandomState,
  Scope,
} from "../../../src/index.js";
import { drawnTensor } from "../harness/drawn-tensor.js";

const backends: Backend[] = [];
afterEach(async () => {
  for (const backend of backends.splice(0)) await backend.dispose();
});

describe.each(DATAPATH_FAMILIES)("on the datapath %s", (datapath) => {
  const expected = datapath === "blackwell" ? MXFP8BlockScaling : DelayedScaling;
  const openDefault = async (): Promise<Backend> => {
    const backend = await openBackend("wasm", { threads: 1, datapath });
    backends.push(backend);
    return backend;
  };

  it(`the default recipe is ${expected.name}, with its defaults`, async () => {
    const recipe = getDefaultRecipe(await openDefault());
    expect(recipe).toBeInstanceOf(expected);
    expect(recipe.key).toBe(new expected().key);
  });

  it("a region of that backend has the default recipe by default, and a region without a backend delayed scaling", async () => {
    const backend = await openDefault();
    expect(autocast({ backend }, () => currentRegion()?.recipe.key)).toBe(new expected().key);
    expect(autocast({}, () => currentRegion()?.recipe.key)).toBe(new DelayedScaling().key);
    {
      using _region = autocastScope({ backend });
      expect(currentRegion()?.recipe).toBeInstanceOf(expected);
    }
    const defaultRecipe = new MXFP8BlockScaling();
    if (checkRecipeSupport(defaultRecipe, backend).ok)
      expect(autocast({ backend, recipe: defaultRecipe }, () => currentRegion()?.recipe)).toBe(defaultRecipe);
  });

  it("a layer computes by the default recipe", async () => {
    const backend = await openDefault();
    using _scope = new Scope();
    using layer = new Linear(backend, 32, 32, { random: new RandomState(1n) });
    const x = drawnTensor(backend, 1, [32, 32], "bf16", 2);
    const result = (options: object) =>
      noGrad(() => autocast(options, () => layer.forward(x)))
        .tensor.dataSync()
        .slice();
    const bits = result({ backend });
    expect(bits).toEqual(result({ recipe: new expected() }));
    expect(bits).not.toEqual(result({ enabled: false }));
    layer.dispose();
  });
});
