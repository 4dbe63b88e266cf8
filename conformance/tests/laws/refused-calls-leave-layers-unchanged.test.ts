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
const other = useBackend({ threads: 1, datapath: "hopper" });

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

const inputs = (built: BuiltModule, dtype: WideDType = "bf16"): Inputs =>
  createInputs(backend(), built, { ...SIZES, dtype, requiresGrad: false, isZero: true });

const memory = () => {
  const { live, blocks } = backend().memoryUse();
  return { live, blocks };
};

function pass(built: BuiltModule, region: AutocastOptions, x?: Inputs, call: LinearCall = {}): void {
  using _ = new Scope();
  autocast(region, () => built.run(x ?? inputs(built), call));
}

const plain = (_: string, value: unknown) => (value instanceof Float32Array ? [...value] : value);

/** The scales, histories and amaxes of a layer. */
function scalesOf({ module }: BuiltModule): string {
  const states = [...module.namedQuantizations()].map(([name, of]) => [name, of.snapshotSync() ?? "none"]);
  return JSON.stringify(states, plain);
}

/**
 * Two recipes of different kinds. A layer without a recipe takes the first without a warning and warns about the
 * second.
 */
const ANY = [new Float8CurrentScaling(), new DelayedScaling()];

/** Runs a layer under both recipes. Returns the number of warnings. */
function warningsUnderAny(built: BuiltModule): number {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  warn.mockClear();
  for (const recipe of ANY) pass(built, { recipe });
  return warn.mock.calls.length;
}

const warnings = new Map<ModuleRow, number>();

/** The number of warnings that a new layer of a row writes under both recipes. */
function warningsOf(row: ModuleRow): number {
  const known = warnings.get(row);
  if (known !== undefined) return known;
  using built = build(row);
  const count = warningsUnderAny(built);
  expect(count > 0).toBe(row.quantizes);
  warnings.set(row, count);
  return count;
}

/** A layer, its row, and the recipe in force before a call: none, or one of another kind. */
interface Subject {
  readonly row: ModuleRow;
  readonly built: BuiltModule;
  readonly before: Recipe | undefined;
}

/** Fails unless `call` is refused and the layer then behaves as if it had not been called. */
function expectUntouched({ row, built, before }: Subject, call: () => void): void {
  const expected = before ? 0 : warningsOf(row);
  vi.restoreAllMocks();
  const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
  const [scales, use] = [scalesOf(built), memory()];
  expect(call).toThrow(LockstepError);
  expect(scalesOf(built)).toBe(scales);
  expect(memory()).toEqual(use);
  expect(warn).not.toHaveBeenCalled();
  const isComplete = built.module
    .parameters()
    .every(({ value }) => value instanceof Tensor && !value.disposed);
  if (!isComplete) return;
  // a layer warns when its recipe changes to another kind; no warning means that the earlier recipe is still in force,
  // or none was
  if (before) pass(built, { recipe: before });
  else warningsUnderAny(built);
  expect(warn).toHaveBeenCalledTimes(expected);
}

/** A call that a layer refuses. */
interface Wrong {
  readonly applies: (row: ModuleRow) => boolean;
  /** Replaces an input of a type and shape that the layer accepts. */
  readonly input?: (dtype: DType, shape: Shape) => Tensor;
  readonly call?: () => LinearCall;
}

const always = (): boolean => true;
const WRONG: Readonly<Record<string, Wrong>> = {
  "columns that the weight does not have": {
    applies: ({ takesNumbers }) => !takesNumbers,
    input: (dtype, shape) => zeros(backend(), dtype, [...shape.slice(0, -1), FEATURES / 2]),
  },
  "an input on another backend": { applies: always, input: (dtype, shape) => zeros(other(), dtype, shape) },
  "an input of another kind of numbers": {
    applies: always,
    input: (dtype, shape) => zeros(backend(), dtype === "i32" ? "bf16" : "i32", shape),
  },
  "a flag for the weight on another backend": {
    applies: ({ call }) => call.includes("skipFp8WeightUpdate"),
    call: () => ({ skipFp8WeightUpdate: zeros(other(), "f32", [1]) }),
  },
};

/** The refused calls of a layer. Of several inputs, one is wrong; of several layers, the first layer's input. */
function wrongCalls({ row, built }: Subject, region: AutocastOptions, wrong: Wrong): readonly (() => void)[] {
  const [right, call] = [inputs(built), wrong.call?.()];
  const { input } = wrong;
  if (!input) return [() => pass(built, region, right, call)];
  const replaced = row.composed === undefined ? right : right.slice(0, 1);
  return replaced.map(({ value: { dtype, shape } }, i) => {
    const given = right.with(i, new Variable(input(dtype, shape)));
    return () => pass(built, region, given, call);
  });
}

function subjectOf(row: ModuleRow, recipe: Recipe, used: boolean): Subject {
  const built = build(row);
  if (!used) return { row, built, before: undefined };
  const before = recipe.kind === "current" ? new DelayedScaling() : new Float8CurrentScaling();
  pass(built, { recipe: before }, undefined, { isFirstMicrobatch: true });
  return { row, built, before };
}

const CASES = rowsWhere().flatMap(([layer, row]) =>
  (row.quantizes ? RECIPES : RECIPES.slice(0, 1)).flatMap(([name, recipe]) =>
    [true, false].map((used) => ({
      ...{ name: `${layer}, ${name}, ${used ? "" : "not "}in use`, row, recipe, used },
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

  describe.each(TESTED)("$name", ({ row, recipe, used }) => {
    it.each(Object.entries(WRONG).filter(([, { applies }]) => applies(row)))("%s", (_what, wrong) => {
      using _ = new Scope();
      const subject = subjectOf(row, recipe, used);
      for (const call of wrongCalls(subject, { recipe }, wrong)) expectUntouched(subject, call);
      subject.built.module.dispose();
    });
  });

  it.each(SINGLE)("$name: disposed parameters", ({ row, recipe, used }) => {
    using probe = build(row);
    for (const name of probe.module.namedParameters().keys()) {
      const subject = subjectOf(row, recipe, used);
      const { module } = subject.built;
      module.namedParameters().get(name)?.value.dispose();
      expectUntouched(subject, () => pass(subject.built, { recipe }));
      module.dispose();
    }
  });

  it.each(TESTED.filter(({ row, recipe }) => recipe.kind === "nvfp4" && row.quantizes && !row.takesNumbers))(
    "$name: f32, which its transform does not take",
    ({ row, recipe, used }) => {
      using _ = new Scope();
      const subject = subjectOf(row, recipe, used);
      const x = inputs(subject.built, "f32");
      expectUntouched(subject, () => pass(subject.built, { recipe }, x));
      subject.built.module.dispose();
    },
  );

  const SAVING = rowsWhere(({ takes, composed }) => takes.includes("saveOriginalInput") && !composed);
  it.each(SAVING)("%s: saveOriginalInput under delayed scaling", (_, row) => {
    using built = build(row, { saveOriginalInput: true });
    const before = new Float8CurrentScaling();
    pass(built, { recipe: before });
    expectUntouched({ row, built, before }, () => pass(built, { recipe: new DelayedScaling() }));
  });

  /** Layers in which only the last product is too narrow. */
  const NARROWING = rowsWhere(({ products }) => {
    const widths = products?.(SIZES).map(({ to }) => to) ?? [];
    return widths.length > 1 && widths.at(-2) === 2 * SIZES.middle;
  }).flatMap(([name, row]) => RECIPES.map((recipe) => [`${name}, ${recipe[0]}`, row, recipe] as const));
  it.each(NARROWING)("%s: a second product that is too narrow", (_name, row, [, recipe, narrow]) => {
    using _ = new Scope();
    using built = build(row, {}, { ...SIZES, middle: narrow });
    const x = inputs(built);
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const use = memory();
    expect(() => pass(built, { recipe }, x)).toThrow(ShapeError);
    expect(memory()).toEqual(use);
    const states = [...built.module.namedQuantizations().values()].map((each) => each.snapshotSync());
    expect(states).toEqual([undefined, undefined]);
    // blocks of 1 x 1 fit any layer: if the refused recipe were in force, the first product would now warn about the
    // change
    const small = new CustomRecipe({ quantizerFactory: () => new Float8CurrentScalingQuantizer() });
    expect(() => pass(built, { recipe: small, enabled: false, calibrating: true }, x)).not.toThrow();
    expect(warn).not.toHaveBeenCalled();
  });
});

describe("a restored state", () => {
  const [three, two] = [new Float32Array(3), new Float32Array(2)];
  const whole = {
    forward: { scale: three, amaxHistory: new Float32Array(12) },
    backward: { scale: two, amaxHistory: new Float32Array(8) },
  };
  const { forward, backward } = whole;
  const INVALID: Readonly<Record<string, unknown>> = {
    null: null,
    "a number": 1,
    "a list": [whole],
    "half a snapshot": { forward },
    "another field": { ...whole, sideways: forward },
    "no scale": { ...whole, forward: { amaxHistory: three } },
    "scales of f64": { ...whole, forward: { ...forward, scale: new Float64Array(3) } },
    "scales as a list": { ...whole, forward: { ...forward, scale: [1, 1, 1] } },
    "scales of the other pass": { ...whole, backward: forward },
    "a history of no rows": { ...whole, backward: { ...backward, amaxHistory: new Float32Array(0) } },
    "a history of half a row": { ...whole, backward: { ...backward, amaxHistory: new Float32Array(7) } },
  };

  it.each(rowsWhere(({ quantizes }) => quantizes))(
    "of %s is refused if it is invalid, and the one in force stays",
    (_, row) => {
      using built = build(row);
      pass(built, { recipe: new DelayedScaling() });
      const states = [...built.module.namedQuantizations()].filter(([, each]) => each.snapshotSync());
      expect(states.length).toBeGreaterThan(0);
      for (const [name, state] of states) {
        const before = scalesOf(built);
        for (const [what, snapshot] of Object.entries(INVALID)) {
          expect(() => state.restore(snapshot as undefined), `${name}: ${what}`).toThrow(LockstepError);
          expect(scalesOf(built), `${name}: ${what}`).toBe(before);
        }
        state.restore(whole);
        expect(scalesOf(built), name).not.toBe(before);
      }
    },
  );
});
