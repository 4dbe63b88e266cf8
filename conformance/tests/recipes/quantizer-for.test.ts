/**
 * The quantizer of each tensor and the options of each product under a recipe, for all option values, compared with a
 * second version of docs/training.md's tables.
 */
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { ArgumentError, UnsupportedError } from "../../../src/errors.js";
import { DATAPATH_FAMILIES } from "../../../src/formats/datapath.js";
import {
  type Backend,
  CustomRecipe,
  checkRecipeSupport,
  DelayedScaling,
  Float8BlockScaling,
  Float8CurrentScaling,
  getDefaultRecipe,
  MXFP8BlockScaling,
  MXFP8Quantizer,
  NVFP4BlockScaling,
  NVFP4Quantizer,
  openBackend,
  RandomState,
  tensor,
} from "../../../src/index.js";
import { quantizerFor } from "../../../src/recipes/quantizer-for.js";
import { type RecipeOptions, StandardRecipe } from "../../../src/recipes/recipe.js";
import { BACKWARD_OVERRIDES, PRODUCTS, RECIPES, ROLES, type Role } from "../../../src/recipes/table.js";
import { draws } from "../harness/draws.js";
import { type Refusal, refusals, untyped } from "../harness/refusals.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "exact" });
const EVERY: readonly Role[] = [...ROLES.forward, ...ROLES.backward];
const isGradient = (role: Role): boolean => role.startsWith("grad");

type OptionValues = Record<string, unknown>;

interface Subject {
  readonly make: (options: OptionValues) => StandardRecipe;
  readonly formats: readonly string[];
  /** Every option of the recipe with its values, the default first. */
  readonly options: Readonly<Record<string, readonly unknown[]>>;
  readonly split: readonly boolean[];
  /** For a role, the fields in which its quantizer differs from one with all options off. */
  readonly qparams: (role: Role, options: OptionValues) => OptionValues;
  /** Whether the options are compatible. */
  readonly valid?: (options: OptionValues) => boolean;
  /**
   * Whether an MLP fuses the gradient of its activation with its quantization: `ungated` for an activation that is not gated,
   * `alone` for any activation without a bias.
   */
  readonly steps: { readonly ungated: boolean; readonly alone: boolean };
}

const sum = (history: Float32Array): number => history.reduce((x, y) => x + y, 0);
const DIM = { 1: "1x128", 2: "128x128" } as const;
const SCOPED: Readonly<Record<string, readonly Role[]>> = {
  none: [],
  weights: ["weight"],
  activations: ["input", "output"],
  all: ["input", "output", "weight"],
};

const SUBJECTS: Readonly<Record<string, Subject>> = {
  DelayedScaling: {
    make: (options) => new DelayedScaling(options),
    formats: ["HYBRID", "E4M3"],
    options: {
      margin: [0, -100, 100, 3],
      amaxHistoryLen: [1024, 1, 2 ** 20],
      amaxComputeAlgo: ["max", "mostRecent", sum],
      scalingFactorComputeAlgo: [undefined, Math.max],
      reduceAmax: [true, false],
    },
    split: [false, true, true],
    qparams: () => ({ tile: "tensor" }),
    steps: { ungated: true, alone: false },
  },
  Float8CurrentScaling: {
    make: (options) => new Float8CurrentScaling(options),
    formats: ["HYBRID", "E4M3"],
    options: { pow2Scales: [false, true], amaxEpsilon: [0, 0.5] },
    split: [false, true, true],
    qparams: (_, { pow2Scales, amaxEpsilon }) => ({ tile: "tensor", pow2Scales, amaxEpsilon }),
    steps: { ungated: false, alone: false },
  },
  Float8BlockScaling: {
    make: (options) => new Float8BlockScaling(options),
    formats: ["E4M3", "HYBRID"],
    options: {
      useF32Scales: [false, true],
      amaxEpsilon: [0, 0.5],
      xBlockScalingDim: [1, 2],
      wBlockScalingDim: [2, 1],
      gradBlockScalingDim: [1, 2],
    },
    split: [true, true, true],
    qparams: (role, { useF32Scales, amaxEpsilon, ...dims }) => {
      const letter = isGradient(role) ? "grad" : role === "weight" ? "w" : "x";
      const tile = DIM[dims[`${letter}BlockScalingDim`] as 1 | 2];
      return { tile, pow2Scales: !useF32Scales, amaxEpsilon };
    },
    valid: ({ xBlockScalingDim, wBlockScalingDim, gradBlockScalingDim }) =>
      [xBlockScalingDim, wBlockScalingDim, gradBlockScalingDim].filter((dim) => dim === 2).length < 2,
    steps: { ungated: false, alone: true },
  },
  MXFP8BlockScaling: {
    make: (options) => new MXFP8BlockScaling(options),
    formats: ["E4M3", "HYBRID"],
    options: { enable2dQuantization: [false, true] },
    split: [false, true, true],
    qparams: (role, { enable2dQuantization }) => ({
      tile: role === "weight" && enable2dQuantization ? "32x32" : "1x32",
    }),
    steps: { ungated: true, alone: true },
  },
  NVFP4BlockScaling: {
    make: (options) => new NVFP4BlockScaling(options),
    formats: ["E2M1"],
    options: {
      disableRht: [false, true],
      disableStochasticRounding: [false, true],
      disable2dQuantization: [false, true],
      fourOverSix: ["none", "weights", "activations", "all"],
      e4m3Use256: ["all", "none", "weights", "activations"],
      fourOverSixErrMode: ["mae", "mse"],
      rowScaledActivation: [false, true],
    },
    split: [false, true, true],
    qparams: (role, options) => {
      const chooses = SCOPED[options.fourOverSix as string]?.includes(role);
      const usesSmallMax = chooses && SCOPED[options.e4m3Use256 as string]?.includes(role);
      return {
        tile: role === "weight" && !options.disable2dQuantization ? "16x16" : "1x16",
        rht: role !== "weight" && !options.disableRht,
        stochastic: isGradient(role) && !options.disableStochasticRounding,
        fourOverSix: chooses ? options.fourOverSixErrMode : "none",
        e4m3Max: usesSmallMax ? 256 : 448,
        rowScaled: options.rowScaledActivation === true && (role === "input" || role === "output"),
      };
    },
    valid: ({ disableRht, fourOverSix, rowScaledActivation }) =>
      disableRht === true || (!/all|activations/.test(String(fourOverSix)) && rowScaledActivation !== true),
    steps: { ungated: false, alone: false },
  },
};

const OFF = {
  pow2Scales: false,
  amaxEpsilon: 0,
  rht: false,
  stochastic: false,
  fourOverSix: "none",
  e4m3Max: 448,
  rowScaled: false,
};
const ELEMENTS: Readonly<Record<string, readonly [forward: string, backward: string]>> = {
  E4M3: ["e4m3", "e4m3"],
  HYBRID: ["e4m3", "e5m2"],
  E2M1: ["e2m1", "e2m1"],
};

/**
 * Combinations of options in which every value occurs with every value of any other option. Some options are absent,
 * which means the default.
 */
function optionsFor({ options, formats, split, valid = () => true }: Subject) {
  const ownOptions = Object.fromEntries(
    Object.entries(options).map(([name, values]) => [name, fc.constantFrom(...values)]),
  );
  const accumulation = fc.record({ useSplitAccumulator: split[0] ? fc.constant(true) : fc.boolean() });
  const products = {
    ...Object.fromEntries(PRODUCTS.map((product) => [product, accumulation])),
    backwardOverride: fc.constantFrom(...BACKWARD_OVERRIDES),
  };
  return fc
    .record({ ...ownOptions, ...products, format: fc.constantFrom(...formats) }, { requiredKeys: [] })
    .map((given: OptionValues) => ({
      given,
      full: {
        ...Object.fromEntries(Object.entries(options).map(([name, [first]]) => [name, first])),
        ...Object.fromEntries(PRODUCTS.map((product, i) => [product, { useSplitAccumulator: split[i] }])),
        format: formats[0],
        backwardOverride: "none",
        ...given,
      } as OptionValues,
    }))
    .filter(({ full }) => valid(full));
}

describe.each(Object.entries(SUBJECTS))("%s", (name, subject) => {
  const subjectOptions = optionsFor(subject);

  it("has the options of its constructor, which alone decide how each tensor is quantized", () => {
    fc.assert(
      fc.property(subjectOptions, ({ given, full }) => {
        const recipe = subject.make(given);
        expect(recipe).toMatchObject(full);
        const [forward, backward] = ELEMENTS[full.format as string] ?? [];
        for (const role of EVERY) {
          expect(recipe.elementFormat(role)).toBe(isGradient(role) ? backward : forward);
          expect(recipe.qparams(role)).toEqual({ ...OFF, ...subject.qparams(role, full) });
        }
        expect(recipe.row.gradientSteps).toEqual(subject.steps);
      }),
    );
  });

  it("has the key of recipes of its class with the same options, and of no others", () => {
    const key = (options: OptionValues) => subject.make(options).key;
    const steps = Object.entries({
      ...{ ...subject.options, format: subject.formats },
      backwardOverride: BACKWARD_OVERRIDES,
    });
    fc.assert(
      fc.property(
        subjectOptions,
        fc.constantFrom(...steps),
        fc.nat(),
        ({ given, full }, [option, values], index) => {
          expect(key(given)).toBe(key(given));
          expect(key(full)).toBe(key(given));
          const value = values[index % values.length];
          const otherOptions = { ...full, [option]: value };
          if (subject.valid?.(otherOptions) ?? true)
            expect(key(otherOptions) === key(full)).toBe(value === full[option]);
        },
      ),
    );
    class Heir extends Float8CurrentScaling {}
    expect(new Heir().key).toBe(new Heir().key);
    expect(new Heir().key).not.toBe(new Float8CurrentScaling().key);
    const otherSubjects = Object.values(SUBJECTS).filter((candidate) => candidate !== subject);
    for (const otherSubject of otherSubjects) expect(otherSubject.make({}).key).not.toBe(key({}));
  });

  testInScope("gives for each role the quantizer that its options determine", () => {
    fc.assert(
      fc.property(subjectOptions, fc.constantFrom(...EVERY), ({ given, full }, role) => {
        const recipe = subject.make(given);
        const random = new RandomState(1n);
        const quantizer = quantizerFor(recipe, role, { scale: tensor(backend(), [1]), random });
        expect(quantizer.spec).toMatchObject({
          quantizer: RECIPES[recipe.kind].quantizer,
          format: recipe.elementFormat(role),
          ...recipe.qparams(role),
          rhtSigns: recipe.qparams(role).rht ? expect.any(Number) : 0,
        });
        if (quantizer instanceof NVFP4Quantizer) expect(quantizer.random).toBe(random);
        expect(full.format).toBe(recipe.format);
      }),
      { numRuns: draws(30) },
    );
  });

  const formats = ["E4M3", "HYBRID", "E2M1", "E5M2", "e4m3", null, 1];
  refusals("refuses", [
    ...formats
      .filter((format) => !subject.formats.includes(format as string))
      .map(
        (format): Refusal => [
          `format ${format}`,
          () => subject.make({ format }),
          ArgumentError,
          [name, "format", ...subject.formats, ...(format === "E5M2" ? ["too many digits"] : [])],
        ],
      ),
    ...PRODUCTS.flatMap((product) =>
      [1, { useSplitAccumulator: 1 }, { split: true }, {}].map(
        (value): Refusal => [
          `${product} ${JSON.stringify(value)}`,
          () => subject.make({ [product]: value }),
          ArgumentError,
          [name, product],
        ],
      ),
    ),
    ...["high_precision", "wide", null, true].map(
      (backwardOverride): Refusal => [
        `backwardOverride ${backwardOverride}`,
        () => subject.make({ backwardOverride }),
        ArgumentError,
        [name, "backwardOverride", ...BACKWARD_OVERRIDES],
      ],
    ),
    [
      "qparams of no role",
      () => subject.make({}).qparams(untyped("bias")),
      ArgumentError,
      ["bias", ...EVERY],
    ],
    [
      "the format of no role",
      () => subject.make({}).elementFormat(untyped("bias")),
      ArgumentError,
      ["bias", ...EVERY],
    ],
  ]);
});

/** A third-party recipe that checks nothing itself. */
class Theirs extends StandardRecipe {
  constructor(options: RecipeOptions) {
    super("mxfp8", options);
  }
}

refusals("recipes refuse", [
  ...PRODUCTS.map(
    (product): Refusal => [
      `of a class that checks nothing, ${product} 1`,
      () => new Theirs({ [product]: 1 } as RecipeOptions),
      ArgumentError,
      ["Theirs", product],
    ],
  ),
  ...[-101, 101, 1.5, Number.NaN].map(
    (margin): Refusal => [
      `a margin of ${margin}`,
      () => new DelayedScaling({ margin }),
      ArgumentError,
      ["DelayedScaling", "margin"],
    ],
  ),
  ...[0, 2 ** 20 + 1, 1.5].map(
    (amaxHistoryLen): Refusal => [
      `a history of ${amaxHistoryLen}`,
      () => new DelayedScaling({ amaxHistoryLen }),
      ArgumentError,
      ["DelayedScaling", "amaxHistoryLen"],
    ],
  ),
  [
    "a role that there is not, of quantizers of the caller's own",
    () => new CustomRecipe({ quantizerFactory: () => new MXFP8Quantizer() }).quantizer(untyped("bias")),
    ArgumentError,
    ["bias", "weight"],
  ],
  ["no recipe to ask about", () => checkRecipeSupport(untyped("mxfp8"), backend()), ArgumentError, ["mxfp8"]],
  [
    "no backend to ask",
    () => checkRecipeSupport(new DelayedScaling(), untyped("wasm")),
    ArgumentError,
    ["wasm"],
  ],
  [
    "no backend to choose for",
    () => getDefaultRecipe(untyped("wasm")),
    ArgumentError,
    ["getDefaultRecipe", "wasm"],
  ],
]);

it("the caller's own quantizers accumulate as those of Float8CurrentScaling by default, or as their options say", () => {
  const quantizerFactory = () => new MXFP8Quantizer();
  const split = (recipe: CustomRecipe) => PRODUCTS.map((product) => recipe[product].useSplitAccumulator);
  expect(split(new CustomRecipe({ quantizerFactory }))).toEqual([false, true, true]);
  for (const [i, product] of PRODUCTS.entries())
    for (const useSplitAccumulator of [false, true]) {
      const splits = split(new CustomRecipe({ quantizerFactory, [product]: { useSplitAccumulator } }));
      expect(splits).toEqual([false, true, true].with(i, useSplitAccumulator));
    }
  const recipe = new CustomRecipe({ quantizerFactory });
  expect([recipe.kind, recipe.row, checkRecipeSupport(recipe, backend())]).toEqual([
    "custom",
    undefined,
    { ok: true },
  ]);
});

it("recipes have their defaults if there is no process, as in a browser", () => {
  vi.stubGlobal("process", undefined);
  try {
    for (const { make, options } of Object.values(SUBJECTS))
      expect(make({})).toMatchObject(
        Object.fromEntries(Object.entries(options).map(([option, [first]]) => [option, first])),
      );
  } finally {
    vi.unstubAllGlobals();
  }
});

/**
 * The table of docs/training.md that says which recipe runs on which datapath; "emulated" if the chip has no
 * instruction.
 */
const SUPPORT: Readonly<Record<(typeof DATAPATH_FAMILIES)[number], readonly string[]>> = {
  exact: ["yes", "yes", "yes", "yes", "yes"],
  fp32: ["yes", "yes", "yes", "yes", "yes"],
  ada: ["yes", "yes", "no", "emulated", "emulated"],
  hopper: ["yes", "yes", "yes", "emulated", "emulated"],
  blackwell: ["yes", "yes", "yes", "yes", "yes"],
};

describe.each(DATAPATH_FAMILIES)("on the datapath %s", (datapath) => {
  it("each recipe is supported, emulated, or refused with a reason, and the backend is asked once", async () => {
    const openedBackend: Backend = await openBackend("wasm", { threads: 1, datapath });
    try {
      const supports = vi.spyOn(openedBackend, "supports");
      const answers = Object.values(SUBJECTS).map(({ make }) => {
        const [support, times] = [checkRecipeSupport(make({}), openedBackend), supports.mock.calls.length];
        expect(checkRecipeSupport(make({}), openedBackend)).toBe(support);
        expect(supports.mock.calls.length).toBe(times);
        const enter = () => autocast({ backend: openedBackend, recipe: make({}) }, () => undefined);
        if (support.ok) enter();
        else expect(enter).toThrow(UnsupportedError);
        if (!support.ok) expect(support.reason).toMatch(/^fprop: /);
        return support.ok ? (support.emulated === undefined ? "yes" : "emulated") : "no";
      });
      expect(answers).toEqual(SUPPORT[datapath]);
      const f32 = checkRecipeSupport(new Float8BlockScaling({ useF32Scales: true }), openedBackend);
      expect(f32.ok).toBe(!["ada", "blackwell"].includes(datapath));
      expect(openedBackend.memoryUse().blocks).toBe(0);
    } finally {
      await openedBackend.dispose();
    }
  });
});
