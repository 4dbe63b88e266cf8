/** A refused forward pass leaves its layers unchanged: recipes, scales, caches and main gradients. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { type AutocastOptions, autocast } from "../../../src/autocast.js";
import { LockstepError, ShapeError } from "../../../src/errors.js";
import type { LinearCall } from "../../../src/modules/linear/parts.js";
import { constantInit } from "../../../src/modules/parameter.js";
import { zeros } from "../../../src/ops/create.js";
import { Float8CurrentScalingQuantizer } from "../../../src/quantizers/float8.js";
import { MXFP8Quantizer } from "../../../src/quantizers/mx.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../src/recipes/block-scaled.js";
import { CustomRecipe } from "../../../src/recipes/custom.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { DType, Shape, WideDType } from "../../../src/tensor/shape.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { createInputs, rowsWhere, testedCases } from "../harness/modules/calls.js";
import type { BuiltModule, ModuleRow, ModuleSettings } from "../harness/modules/row.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const otherBackend = useBackend({ threads: 1, datapath: "hopper" });

const FEATURES = 128;
const SIZES = { rows: FEATURES, from: FEATURES, to: FEATURES, middle: FEATURES };

const build = (row: ModuleRow, settings: ModuleSettings = {}, sizes = SIZES): BuiltModule =>
  row.build(backend(), sizes, { initMethod: constantInit(0.5), ...settings });

/**
 * Each recipe with `narrow`, a feature count that its quantizer refuses although it accepts 2 * narrow. The first layer
 * of a gated MLP is twice as wide as the second, so only the second layer is refused.
 */
const RECIPES: readonly (readonly [name: string, recipe: Recipe, narrow: number])[] = [
  ["DelayedScaling", new DelayedScaling(), 8],
  ["Float8CurrentScaling", new Float8CurrentScaling(), 8],
  ["Float8BlockScaling", new Float8BlockScaling(), 8],
  ["MXFP8BlockScaling", new MXFP8BlockScaling(), 16],
  ["NVFP4BlockScaling", new NVFP4BlockScaling(), 8],
  ["CustomRecipe", new CustomRecipe({ quantizerFactory: () => new MXFP8Quantizer() }), 16],
];

type Inputs = readonly Variable[];

const inputs = (builtModule: BuiltModule, dtype: WideDType = "bf16"): Inputs =>
  createInputs(backend(), builtModule, { ...SIZES, dtype, requiresGrad: false, isZero: true });

const memory = () => {
  const { live, blocks } = backend().memoryUse();
  return { live, blocks };
};

function runPass(builtModule: BuiltModule, region: AutocastOptions, x?: Inputs, call: LinearCall = {}): void {
  using _ = new Scope();
  autocast(region, () => builtModule.run(x ?? inputs(builtModule), call));
}

const toPlain = (_: string, value: unknown) => (value instanceof Float32Array ? [...value] : value);

/** The scales, histories and amaxes of a layer. */
function scalesOf({ module }: BuiltModule): string {
  const states = [...module.namedQuantizations()].map(([name, quantization]) => [
    name,
    quantization.snapshotSync() ?? "none",
  ]);
  return JSON.stringify(states, toPlain);
}

/**
 * Two recipes of different kinds. A layer without a recipe takes the first without a warning and warns about the
 * second.
 */
const ANY = [new Float8CurrentScaling(), new DelayedScaling()];

/** Runs a layer under both recipes. Returns the number of warnings. */
function warningsUnderAny(builtModule: BuiltModule): number {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  warn.mockClear();
  for (const recipe of ANY) runPass(builtModule, { recipe });
  return warn.mock.calls.length;
}

const warnings = new Map<ModuleRow, number>();

/** The number of warnings that a new layer of a row writes under both recipes. */
function warningsOf(row: ModuleRow): number {
  const cachedCount = warnings.get(row);
  if (cachedCount !== undefined) return cachedCount;
  using builtModule = build(row);
  const count = warningsUnderAny(builtModule);
  expect(count > 0).toBe(row.quantizes);
  warnings.set(row, count);
  return count;
}

/** A layer, its row, and the recipe in force before a call: none, or one of another kind. */
interface Subject {
  readonly row: ModuleRow;
  readonly builtModule: BuiltModule;
  readonly previousRecipe: Recipe | undefined;
}

/** Fails unless `call` is refused and the layer then behaves as if it had not been called. */
function expectUntouched({ row, builtModule, previousRecipe }: Subject, call: () => void): void {
  const expected = previousRecipe ? 0 : warningsOf(row);
  vi.restoreAllMocks();
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  const [scales, use] = [scalesOf(builtModule), memory()];
  expect(call).toThrow(LockstepError);
  expect(scalesOf(builtModule)).toBe(scales);
  expect(memory()).toEqual(use);
  expect(warn).not.toHaveBeenCalled();
  const isComplete = builtModule.module
    .parameters()
    .every(({ value }) => value instanceof Tensor && !value.disposed);
  if (!isComplete) return;
  // a layer warns when its recipe changes to another kind; no warning means that the earlier recipe is still in force,
  // or none was
  if (previousRecipe) runPass(builtModule, { recipe: previousRecipe });
  else warningsUnderAny(builtModule);
  expect(warn).toHaveBeenCalledTimes(expected);
}

/** A call that a layer refuses. */
interface Wrong {
  readonly applies: (row: ModuleRow) => boolean;
  /** Replaces an input of a type and shape that the layer accepts. */
  readonly input?: (dtype: DType, shape: Shape) => Tensor;
  readonly call?: () => LinearCall;
}

const applyAlways = (): boolean => true;
const WRONG: Readonly<Record<string, Wrong>> = {
  "columns that the weight does not have": {
    applies: ({ takesNumbers }) => !takesNumbers,
    input: (dtype, shape) => zeros(backend(), dtype, [...shape.slice(0, -1), FEATURES / 2]),
  },
  "an input on another backend": {
    applies: applyAlways,
    input: (dtype, shape) => zeros(otherBackend(), dtype, shape),
  },
  "an input of another kind of numbers": {
    applies: applyAlways,
    input: (dtype, shape) => zeros(backend(), dtype === "i32" ? "bf16" : "i32", shape),
  },
  "a flag for the weight on another backend": {
    applies: ({ call }) => call.includes("skipFp8WeightUpdate"),
    call: () => ({ skipFp8WeightUpdate: zeros(otherBackend(), "f32", [1]) }),
  },
};

/** The refused calls of a layer. Of several inputs, one is wrong; of several layers, the first layer's input. */
function wrongCalls(
  { row, builtModule }: Subject,
  region: AutocastOptions,
  wrongInput: Wrong,
): readonly (() => void)[] {
  const [validInputs, call] = [inputs(builtModule), wrongInput.call?.()];
  const { input } = wrongInput;
  if (!input) return [() => runPass(builtModule, region, validInputs, call)];
  const replacedInputs = row.composed === undefined ? validInputs : validInputs.slice(0, 1);
  return replacedInputs.map(({ value: { dtype, shape } }, i) => {
    const invalidInputs = validInputs.with(i, new Variable(input(dtype, shape)));
    return () => runPass(builtModule, region, invalidInputs, call);
  });
}

function subjectOf(row: ModuleRow, recipe: Recipe, isUsed: boolean): Subject {
  const builtModule = build(row);
  if (!isUsed) return { row, builtModule, previousRecipe: undefined };
  const previousRecipe = recipe.kind === "current" ? new DelayedScaling() : new Float8CurrentScaling();
  runPass(builtModule, { recipe: previousRecipe }, undefined, { isFirstMicrobatch: true });
  return { row, builtModule, previousRecipe };
}

const CASES = rowsWhere().flatMap(([layer, row]) =>
  (row.quantizes ? RECIPES : RECIPES.slice(0, 1)).flatMap(([name, recipe]) =>
    [true, false].map((isUsed) => ({
      ...{ name: `${layer}, ${name}, ${isUsed ? "" : "not "}in use`, row, recipe, isUsed },
    })),
  ),
);
/** A short run tests a sample of the composed layers, and of rows that differ from another row only in a result. */
const TESTED = testedCases(
  CASES,
  ({ row }) => row,
  ({ operationsOf, type }) => operationsOf === type.name,
);
/** The composed layers, whose first layers may have changed when a later one refuses. */
const SINGLE = TESTED.filter(({ row }) => !row.composed && !row.hasNoParameters);

describe("a refused forward pass leaves its layer as it was", () => {
  afterEach(() => vi.restoreAllMocks());

  describe.each(TESTED)("$name", ({ row, recipe, isUsed }) => {
    it.each(Object.entries(WRONG).filter(([, { applies }]) => applies(row)))("%s", (_what, wrongInput) => {
      using _ = new Scope();
      const subject = subjectOf(row, recipe, isUsed);
      for (const call of wrongCalls(subject, { recipe }, wrongInput)) expectUntouched(subject, call);
      subject.builtModule.module.dispose();
    });
  });

  it.each(SINGLE)("$name: disposed parameters", ({ row, recipe, isUsed }) => {
    using probe = build(row);
    for (const name of probe.module.namedParameters().keys()) {
      const subject = subjectOf(row, recipe, isUsed);
      const { module } = subject.builtModule;
      module.namedParameters().get(name)?.value.dispose();
      expectUntouched(subject, () => runPass(subject.builtModule, { recipe }));
      module.dispose();
    }
  });

  it.each(TESTED.filter(({ row, recipe }) => recipe.kind === "nvfp4" && row.quantizes && !row.takesNumbers))(
    "$name: f32, which its transform does not take",
    ({ row, recipe, isUsed }) => {
      using _ = new Scope();
      const subject = subjectOf(row, recipe, isUsed);
      const x = inputs(subject.builtModule, "f32");
      expectUntouched(subject, () => runPass(subject.builtModule, { recipe }, x));
      subject.builtModule.module.dispose();
    },
  );

  const SAVING = rowsWhere(({ takes, composed }) => takes.includes("saveOriginalInput") && !composed);
  it.each(SAVING)("%s: saveOriginalInput under delayed scaling", (_, row) => {
    using builtModule = build(row, { saveOriginalInput: true });
    const previousRecipe = new Float8CurrentScaling();
    runPass(builtModule, { recipe: previousRecipe });
    expectUntouched({ row, builtModule, previousRecipe }, () =>
      runPass(builtModule, { recipe: new DelayedScaling() }),
    );
  });

  /** Layers in which only the last product is too narrow. */
  const NARROWING = rowsWhere(({ products }) => {
    const widths = products?.(SIZES).map(({ to: outFeatures }) => outFeatures) ?? [];
    return widths.length > 1 && widths.at(-2) === 2 * SIZES.middle;
  }).flatMap(([name, row]) => RECIPES.map((recipe) => [`${name}, ${recipe[0]}`, row, recipe] as const));
  it.each(NARROWING)("%s: a second product that is too narrow", (_name, row, [, recipe, narrow]) => {
    using _ = new Scope();
    using builtModule = build(row, {}, { ...SIZES, middle: narrow });
    const x = inputs(builtModule);
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const use = memory();
    expect(() => runPass(builtModule, { recipe }, x)).toThrow(ShapeError);
    expect(memory()).toEqual(use);
    const states = [...builtModule.module.namedQuantizations().values()].map((quantization) =>
      quantization.snapshotSync(),
    );
    expect(states).toEqual([undefined, undefined]);
    // blocks of 1 x 1 fit any layer: if the refused recipe were in force, the first product would now warn about the
    // change
    const smallRecipe = new CustomRecipe({ quantizerFactory: () => new Float8CurrentScalingQuantizer() });
    expect(() =>
      runPass(builtModule, { recipe: smallRecipe, enabled: false, calibrating: true }, x),
    ).not.toThrow();
    expect(warn).not.toHaveBeenCalled();
  });
});

describe("a restored state", () => {
  const [threeElements, twoElements] = [new Float32Array(3), new Float32Array(2)];
  const fullSnapshot = {
    forward: { scale: threeElements, amaxHistory: new Float32Array(12) },
    backward: { scale: twoElements, amaxHistory: new Float32Array(8) },
  };
  const { forward, backward } = fullSnapshot;
  const INVALID: Readonly<Record<string, unknown>> = {
    null: null,
    "a number": 1,
    "a list": [fullSnapshot],
    "half a snapshot": { forward },
    "another field": { ...fullSnapshot, sideways: forward },
    "no scale": { ...fullSnapshot, forward: { amaxHistory: threeElements } },
    "scales of f64": { ...fullSnapshot, forward: { ...forward, scale: new Float64Array(3) } },
    "scales as a list": { ...fullSnapshot, forward: { ...forward, scale: [1, 1, 1] } },
    "scales of the other pass": { ...fullSnapshot, backward: forward },
    "a history of no rows": { ...fullSnapshot, backward: { ...backward, amaxHistory: new Float32Array(0) } },
    "a history of half a row": {
      ...fullSnapshot,
      backward: { ...backward, amaxHistory: new Float32Array(7) },
    },
  };

  it.each(rowsWhere(({ quantizes }) => quantizes))(
    "of %s is refused if it is invalid, and the one in force stays",
    (_, row) => {
      using builtModule = build(row);
      runPass(builtModule, { recipe: new DelayedScaling() });
      const states = [...builtModule.module.namedQuantizations()].filter(([, quantization]) =>
        quantization.snapshotSync(),
      );
      expect(states.length).toBeGreaterThan(0);
      for (const [name, state] of states) {
        const scalesBefore = scalesOf(builtModule);
        for (const [title, snapshot] of Object.entries(INVALID)) {
          expect(() => state.restore(snapshot as undefined), `${name}: ${title}`).toThrow(LockstepError);
          expect(scalesOf(builtModule), `${name}: ${title}`).toBe(scalesBefore);
        }
        state.restore(fullSnapshot);
        expect(scalesOf(builtModule), name).not.toBe(scalesBefore);
      }
    },
  );
});
