/**
 * The memory of a layer on a backend: parameters and state; during a step also what the backward pass needs; afterwards
 * no more.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { Embedding } from "../../../../src/modules/embedding.js";
import { Linear } from "../../../../src/modules/linear.js";
import { zeros } from "../../../../src/ops/create.js";
import { MXFP8Quantizer } from "../../../../src/quantizers/mx.js";
import { RandomState } from "../../../../src/quantizers/random-state.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../../src/recipes/per-tensor.js";
import { quantizerFor } from "../../../../src/recipes/quantizer-for.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Shape, WideDType } from "../../../../src/tensor/shape.js";
import { covering, product } from "../../../arbitraries/covering.js";
import { sampleCases } from "../../harness/draws.js";
import {
  combineResults,
  createInputs,
  inputsWithGradients,
  recomputeModule,
  regionOptions,
  rowsWhere,
  testedCases,
} from "../../harness/modules/calls.js";
import type { SettingName } from "../../harness/modules/row.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const live = (): number => backend().memoryUse().live;

const RECIPES: Readonly<Record<string, Recipe | undefined>> = {
  none: undefined,
  delayed: new DelayedScaling({ amaxHistoryLen: 4 }),
  current: new Float8CurrentScaling(),
  block: new Float8BlockScaling(),
  mxfp8: new MXFP8BlockScaling(),
  "mxfp8, square": new MXFP8BlockScaling({ enable2dQuantization: true }),
  nvfp4: new NVFP4BlockScaling(),
  custom: new CustomRecipe({ quantizerFactory: () => new MXFP8Quantizer() }),
};

const SIZES = { rows: 32, from: 64, to: 32, middle: 96 };

/** Conditions on a parameter's name. Parameters for which one holds get no gradient. */
const FROZEN: Readonly<Record<string, (name: string) => boolean>> = {
  nothing: () => false,
  weights: (name) => /weight$/i.test(name),
  biases: (name) => /bias$/i.test(name),
  everything: () => true,
};

/** The memory, fences included, that a new object occupies. */
function growthOf(make: () => { dispose(): void }): number {
  const liveBefore = live();
  const disposable = make();
  const size = live() - liveBefore;
  disposable.dispose();
  return size;
}

const leaf = (shape: Shape, requiresGrad: boolean): Variable =>
  new Variable(zeros(backend(), "bf16", shape), requiresGrad);

const CASES = rowsWhere().flatMap(([name, row]) =>
  Object.entries(RECIPES).flatMap(([kind, recipe]) =>
    recipe && !row.quantizes ? [] : [[name, kind, row, recipe] as const],
  ),
);

describe("a module holds no additional memory after each pass, whichever gradients are required", () => {
  it.each(
    testedCases(
      CASES,
      ([, , row]) => row,
      () => false,
    ),
  )("%s under %s", (name, kind, row, recipe) => {
    const takes = (setting: SettingName): boolean => row.takes.includes(setting);
    const rows = product({
      option: [
        {},
        ...(takes("bias") ? [{ bias: false }] : []),
        ...(takes("saveOriginalInput") && kind !== "delayed" ? [{ saveOriginalInput: true }] : []),
      ],
      frozen: Object.keys(FROZEN),
      wanted: [true, false],
      again: [false, true],
    });
    for (const { option, frozen, wanted: isWanted, again: isRepeated } of sampleCases(
      covering(rows, 2),
      2,
      name.length + kind.length,
    )) {
      const builtModule = row.build(backend(), SIZES, option);
      for (const [parameterName, parameter] of builtModule.module.namedParameters())
        parameter.requiresGrad = !FROZEN[frozen]?.(parameterName);
      const inputs = createInputs(backend(), builtModule, { ...SIZES, requiresGrad: isWanted, isZero: true });
      const forward = (): readonly Variable[] =>
        autocast(regionOptions(recipe), () =>
          isRepeated ? [recomputeModule(builtModule, inputs)] : builtModule.run(inputs),
        );
      const scope = (): Scope | undefined => (row.leavesResults ? new Scope() : undefined);
      const step = (): void => {
        using _scope = scope();
        const results = forward();
        const last = combineResults(results);
        const grad = zeros(backend(), last.value.dtype as WideDType, last.shape);
        if (last.requiresGrad) last.backward(grad);
        for (const { value } of [...results, last]) value.dispose();
        for (const variable of [...inputsWithGradients(inputs), ...builtModule.module.parameters()])
          variable.zeroGrad();
        grad.dispose();
      };
      // the first step allocates persistent state
      step();
      const liveBefore = live();
      const description = JSON.stringify({ option, frozen, wanted: isWanted, again: isRepeated });
      step();
      expect(live(), `after both passes, ${description}`).toBe(liveBefore);
      const evaluate = (): void => {
        using _scope = scope();
        for (const { value } of noGrad(forward)) value.dispose();
      };
      evaluate();
      expect(live(), `after evaluation, ${description}`).toBe(liveBefore);
      for (const disposable of [builtModule.module, ...inputs.map(({ value }) => value)])
        disposable.dispose();
    }
  });
});

const CHOSEN = Object.entries(RECIPES).filter(([kind]) => kind !== "none" && kind !== "custom");
describe.each(CHOSEN)("between the passes under %s, a Linear", (kind, choices) => {
  const recipe = choices as Recipe;
  const bytes = (
    role: "input" | "weight",
    shape: Shape,
    usage: { rowwise: boolean; columnwise: boolean },
  ): number => {
    const [scale, x] = [zeros(backend(), "f32", [1]), zeros(backend(), "bf16", shape)];
    const quantizer = quantizerFor(recipe, role, { scale, random: new RandomState(0n) }).setUsage(usage);
    const size = growthOf(() => quantizer.quantize(x));
    for (const tensor of [scale, x]) tensor.dispose();
    return size;
  };
  it.each([
    ["an input and a weight", true, true],
    ["an input alone", true, false],
    ["a weight alone", false, true],
    ["nothing", false, false],
  ])(
    "that gives gradients to %s holds the copies that the products of these gradients read",
    (_, ofInput, ofWeight) => {
      for (const saveOriginalInput of kind === "delayed" ? [false] : [false, true]) {
        const layer = new Linear(backend(), SIZES.from, SIZES.to, { bias: false, saveOriginalInput });
        layer.weight.requiresGrad = ofWeight;
        const x = leaf([SIZES.rows, SIZES.from], ofInput);
        const forward = (): Variable => autocast({ recipe }, () => layer.forward(x));
        const firstBytes = forward();
        const grad = zeros(backend(), "bf16", firstBytes.shape);
        if (firstBytes.requiresGrad) firstBytes.backward(grad);
        firstBytes.value.dispose();
        for (const variable of [x, layer.weight]) variable.zeroGrad();
        const liveBefore = live();
        const y = forward();
        const ownBytes = live() - liveBefore - growthOf(() => zeros(backend(), "bf16", y.shape));
        const columnwise = { rowwise: false, columnwise: true };
        const copies =
          (ofWeight && !saveOriginalInput ? bytes("input", x.shape, columnwise) : 0) +
          (ofInput ? bytes("weight", layer.weight.shape, columnwise) : 0);
        expect(ownBytes, JSON.stringify({ saveOriginalInput })).toBe(copies);
        if (y.requiresGrad) y.backward(grad);
        for (const tensor of [y.value, grad]) tensor.dispose();
        for (const variable of [x, layer.weight]) variable.zeroGrad();
        expect(live()).toBe(liveBefore - growthOf(() => zeros(backend(), "bf16", y.shape)));
        layer.dispose();
        x.value.dispose();
      }
    },
  );
});

it("an Embedding holds only its weight after a pass", () => {
  const layer = new Embedding(backend(), 8, 16);
  const ids = zeros(backend(), "i32", [4]);
  const liveBefore = live();
  const y = layer.forward(ids);
  const grad = zeros(backend(), y.tensor.dtype, y.shape);
  y.backward(grad);
  for (const tensor of [y.value, grad]) tensor.dispose();
  layer.weight.zeroGrad();
  expect(live()).toBe(liveBefore);
  layer.dispose();
  ids.dispose();
});
