/**
 * A layer drops its cached weight, or both if each copy has its own quantizer, when its recipe changes and when its state is
 * restored: a call that uses the cached weight then has the bits of one that caches nothing. `dispose` frees it.
 */
import { beforeEach, expect, it, vi } from "vitest";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { download } from "../../../values/plain.js";
import { sampled } from "../../harness/draws.js";
import { inputsOf, leavesOf, rowsWhere, step } from "../../harness/modules/calls.js";
import type { Built } from "../../harness/modules/row.js";
import { CUSTOM_NAMES, recipeNamed, STANDARD_NAMES } from "../../harness/step/library-recipes.js";
import type { RecipeName } from "../../harness/step/options.js";
import { useBackend } from "../../harness/suite.js";
import { fill } from "../attention/drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const SIZES = { rows: 32, from: 32, to: 32, middle: 32 };
const NAMES = [...STANDARD_NAMES, ...CUSTOM_NAMES];

/** The recipe whose state a layer has between two calls under the recipe `name`. */
const otherThan = (name: RecipeName): RecipeName =>
  NAMES[(NAMES.indexOf(name) + 5) % NAMES.length] as RecipeName;

/** The bits of a step's result and gradients. */
function bitsOf(built: Built, recipe: RecipeName, seed: number, call: object): readonly unknown[] {
  using _ = new Scope();
  const inputs = inputsOf(backend(), built, { ...SIZES, seed });
  const leaves = [...leavesOf(inputs), ...built.module.parameters()];
  const y = step(built, inputs, recipeNamed(recipe), { call, seed: seed + 1 });
  const bits = [y.tensor, ...leaves.map(({ grad }) => grad)].map(
    (each) => each && String(download(each).codes),
  );
  for (const each of leaves) each.zeroGrad();
  return bits;
}

/** The steps of a module whose cached weight the change drops. `caches` says whether it caches weights at all. */
const CHANGES: Readonly<
  Record<
    string,
    (built: Built, recipe: RecipeName, caches: (isFirst: boolean) => object) => readonly unknown[]
  >
> = {
  "under another recipe": (built, recipe, caches) => {
    const first = bitsOf(built, recipe, 1, caches(true));
    fill(5, built.module);
    return [first, bitsOf(built, otherThan(recipe), 2, caches(false))];
  },
  "under the first recipe again": (built, recipe, caches) => {
    const first = bitsOf(built, recipe, 1, caches(true));
    fill(5, built.module);
    const between = bitsOf(built, otherThan(recipe), 2, caches(true));
    fill(6, built.module);
    return [first, between, bitsOf(built, recipe, 3, caches(false))];
  },
  "with a restored state": (built, recipe, caches) => {
    const first = bitsOf(built, recipe, 1, caches(true));
    const saved = [...built.module.namedQuantizations()].map(
      ([, quantization]) => [quantization, quantization.snapshotSync()] as const,
    );
    const second = bitsOf(built, recipe, 2, caches(true));
    fill(5, built.module);
    for (const [quantization, snapshot] of saved) quantization.restore(snapshot);
    return [first, second, bitsOf(built, recipe, 3, caches(false))];
  },
};

const CASES = rowsWhere(
  ({ call, composed }) => call.includes("isFirstMicrobatch") && composed === undefined,
).flatMap(([name, row]) => NAMES.map((recipe) => [name, recipe, row] as const));
/** The cases that each run tests: a Linear under quantizers of the caller's own, which may differ between the copies. */
const isTested = ([name, recipe]: (typeof CASES)[number]): boolean =>
  name === "Linear" && CUSTOM_NAMES.includes(recipe);

// a layer warns that its recipe changes
beforeEach(() => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
  return () => warn.mockRestore();
});

it.each([...CASES.filter(isTested), ...sampled(CASES.filter((each) => !isTested(each)))])(
  "%s, %s",
  (_name, recipe, row) => {
    for (const [change, run] of Object.entries(CHANGES)) {
      const [cached, plain] = [true, false].map((isCached) => {
        using _ = new Scope();
        using built = row.build(backend(), SIZES, { random: new RandomState(7n) });
        fill(4, built.module);
        return run(built, recipe, (isFirstMicrobatch) => (isCached ? { isFirstMicrobatch } : {}));
      });
      expect(cached, change).toEqual(plain);
    }
  },
);
