/**
 * A whole training step equals a model in plain arithmetic, bit for bit: every pair of option values, with new random
 * numbers.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { pairwise, tuplesAmong } from "../../arbitraries/covering.js";
import { splitmix32 } from "../../arbitraries/random.js";
import type { Matrix } from "../../oracle/training/matrix.js";
import { sampleCases } from "../harness/draws.js";
import { OPTIONS, RECIPES, type RecipeName, type StepOptions } from "../harness/step/options.js";
import { type CellPlan, createPlan, type StepPlan } from "../harness/step/plan.js";
import { firstDifference, modelResults } from "../harness/step/run.js";
import { difference, type StepResults } from "../harness/step/seen.js";
import { useBackend } from "../harness/suite.js";

const [drawSeed] = fc.sample(fc.noBias(fc.nat()), 1) as [number];
const next = splitmix32(drawSeed);

describe(`every pair of options, cases drawn from ${drawSeed}`, () => {
  const backend = useBackend({ threads: 1, datapath: "exact" });
  const rows = pairwise(OPTIONS, (n) => next() % n).map((options, i) => ({ options, i }));

  it("are covered by the cases", () => {
    const counts = Object.values(OPTIONS).map((values) => values.length);
    const pairs = counts.flatMap((count, i) => counts.slice(i + 1).map((otherCount) => count * otherCount));
    const tuples = tuplesAmong(
      rows.map(({ options }) => options),
      2,
    );
    expect(tuples.size).toBe(pairs.reduce((a, b) => a + b));
  });

  it.each(sampleCases(rows))("$i: $options.layer under $options.recipe", ({ options, i }) => {
    // histories and optimizer state have an effect only from the second step on
    const steps = i % 3 === 0 || options.recipe === "delayed" ? 2 : 1;
    const plan = createPlan(options, (drawSeed + 7919 * i) >>> 1, steps);
    expect(firstDifference(backend(), plan), JSON.stringify(plan)).toBe(undefined);
  });
});

const PLAIN = {
  ...{
    recipe: "current",
    variant: 0,
    override: "none",
    layer: "linear",
    wrap: "plain",
    around: "nothing",
    nested: false,
  },
  ...{ normalization: "LayerNorm", zeroCenteredGamma: false, eps: 1e-5, bias: true, parameters: "bf16" },
  ...{
    input: "bf16",
    start: "variable",
    frozen: "nothing",
    fuses: false,
    savesOriginal: false,
    delays: false,
  },
  ...{ microbatches: "alone", optimizer: "SGD", stepping: "plain", loss: "gradient", causal: true },
  values: "ordinary",
} as const satisfies StepOptions;

const PRODUCTS = ["fprop", "dgrad", "wgrad"] as const;
/** Sizes at which a product sums more than 128 terms; each key names the product. */
const DEEP = {
  fprop: { rows: 8, from: 144, to: 16, makes: "0 0 result" },
  dgrad: { rows: 8, from: 16, to: 144, makes: "0 0 dx" },
  wgrad: { rows: 136, from: 16, to: 16, makes: "0 0 cell0.linear.weight grad" },
} as const;

type Split = Readonly<Record<(typeof PRODUCTS)[number], boolean>>;

/** The plan of a linear layer in which the sum of product `deep` is long. */
function deepPlan(
  recipe: "current" | "delayed",
  deep: keyof typeof DEEP,
  split: Split | undefined,
  layer: CellPlan["layer"] = "linear",
): StepPlan {
  const { rows, from, to: outFeatures } = DEEP[deep];
  const plan = createPlan(
    { ...PLAIN, recipe, parameters: "f32", input: "f32" },
    (drawSeed + from + outFeatures) >>> 1,
    1,
  );
  const model = RECIPES[recipe];
  const cell = { layer, wrap: "plain", from, to: outFeatures, middle: 144 } as const;
  return { ...plan, quantization: split ? { ...model, split } : model, rows, features: from, cells: [cell] };
}

describe(`products on Hopper's datapath, numbers drawn from ${drawSeed}`, () => {
  const backend = useBackend({ threads: 1, datapath: "hopper" });
  describe.each(sampleCases(PRODUCTS, 1))("a deep %s", (deep) => {
    const onlyProduct = Object.fromEntries(PRODUCTS.map((product) => [product, product === deep])) as Split;
    const otherProducts = Object.fromEntries(PRODUCTS.map((product) => [product, product !== deep])) as Split;

    it.each(sampleCases([undefined, onlyProduct, otherProducts], 1))(
      "accumulates by its own option: %j",
      (split) => {
        for (const recipe of sampleCases(["current", "delayed"] as const, 1)) {
          const mismatch = firstDifference(backend(), deepPlan(recipe, deep, split));
          expect(mismatch, recipe).toBe(undefined);
        }
      },
    );

    it("uses only its own option in the model", () => {
      const unsplit = { fprop: false, dgrad: false, wgrad: false };
      const unsplitResults = modelResults(deepPlan("current", deep, unsplit), "hopper");
      for (const product of sampleCases(PRODUCTS, 1)) {
        const splitResults = modelResults(
          deepPlan("current", deep, { ...unsplit, [product]: true }),
          "hopper",
        );
        const differingNames = [...unsplitResults.keys()].filter(
          (name) =>
            name.startsWith("0 0 ") &&
            difference(resultNamed(splitResults, name), resultNamed(unsplitResults, name)),
        );
        expect(differingNames, product).toEqual(product === deep ? [DEEP[deep].makes] : []);
      }
    });
  });

  it.each(sampleCases(["normLinear", "mlp"] as const, 1))("%s passes them on", (layer) => {
    for (const [bits, deep] of sampleCases([...PRODUCTS.entries()], 1)) {
      const split = { fprop: bits === 0, dgrad: bits === 1, wgrad: bits === 2 };
      for (const productSplit of [split, undefined]) {
        const plan = deepPlan("current", deep, productSplit, layer);
        const [cell] = plan.cells as [CellPlan];
        const testedPlan =
          layer === "mlp" ? { ...plan, cells: [{ ...cell, to: cell.from, middle: 16 }] } : plan;
        expect(firstDifference(backend(), testedPlan), deep).toBe(undefined);
      }
    }
  });

  it.each(sampleCases(["none", "block", "mxfp8", "nvfp4"] as const, 1))(
    "%s is multiplied by the backend's datapath",
    (recipe) => {
      const plan = createPlan({ ...PLAIN, recipe, layer: "mlp of swiglu" }, drawSeed >>> 1, 1);
      expect(firstDifference(backend(), plan)).toBe(undefined);
    },
  );
});

function resultNamed(results: StepResults, name: string): StepResults {
  return new Map([...results].filter(([resultName]) => resultName === name));
}

describe(`any number of rows, numbers drawn from ${drawSeed}`, () => {
  const backend = useBackend({ threads: 1, datapath: "exact" });
  const names = (Object.keys(RECIPES) as RecipeName[]).filter((name) => name !== "none");
  const layers = ["linear", "normLinear", "mlp of swiglu"] as const;
  const cases = names.flatMap((name) => layers.map((layer) => ({ name, layer })));

  it.each(sampleCases(cases, 1))("$layer under $name takes 1, 7 and 33 rows", ({ name, layer }) => {
    const [recipe] = name.split(",") as [StepOptions["recipe"]];
    for (const rows of [1, 7, 33]) {
      const plan = createPlan({ ...PLAIN, parameters: "f32", recipe, layer }, (drawSeed + rows) >>> 1, 1);
      const fullPlan = { ...plan, recipe: name, quantization: RECIPES[name], rows };
      expect(firstDifference(backend(), fullPlan), `${rows} rows`).toBe(undefined);
    }
  });
});

describe(`f32 outside of regions, numbers drawn from ${drawSeed}`, () => {
  const backend = useBackend({ threads: 1, datapath: "hopper" });

  it.each(sampleCases(["linear", "attention", "mlp of gelu"] as const, 1))(
    "%s is multiplied in f32",
    (layer) => {
      const plan = createPlan({ ...PLAIN, recipe: "none", parameters: "f32", layer }, drawSeed >>> 1, 1);
      expect(firstDifference(backend(), plan)).toBe(undefined);
    },
  );
});

describe(`evaluation, numbers drawn from ${drawSeed}`, () => {
  const backend = useBackend({ threads: 1, datapath: "exact" });
  const names = Object.keys(RECIPES) as RecipeName[];

  it.each(sampleCases(names))("under %s updates no scale, and layers pass codes to each other", (name) => {
    const [recipe] = name.split(",") as [StepOptions["recipe"]];
    const features = { parameters: "f32", input: "bf16" } as const;
    const plan = createPlan(
      { ...PLAIN, ...(recipe === "none" ? {} : features), recipe, layer: "between" },
      drawSeed >>> 1,
    );
    const evaluated = { ...plan, recipe: name, quantization: RECIPES[name], evaluates: true };
    expect(firstDifference(backend(), evaluated)).toBe(undefined);
  });
});

describe("a comparison", () => {
  /** Plausible wrong values of a matrix that a step computes. */
  const WRONG_RESULTS: Record<string, (x: Matrix) => Matrix | undefined> = {
    "the last bit of its last element": (x) => withElement(x, x.data.length - 1, (value) => nextTo(value)),
    "the sign of one element": (x) => withElement(x, 0, (value) => -value),
    "one element lost": (x) => withElement(x, x.data.length >> 1, (value) => (value === 0 ? 1 : 0)),
    "another type": (x) => ({ ...x, dtype: x.dtype === "f32" ? "bf16" : "f32" }),
    nothing: () => undefined,
    doubled: (x) => ({ ...x, data: x.data.map((value) => 2 * value + (value === 0 ? 1 : 0)) }),
    "rows in another order": (x) => ({ ...x, data: x.data.slice().reverse() }),
  };

  it.each(sampleCases(Object.entries(WRONG_RESULTS)))("refuses %s, wherever it is", (name, alter) => {
    const results = modelResults(createPlan({ ...PLAIN, layer: "mlp of geglu" }, drawSeed >>> 1, 1), "exact");
    expect(difference(results, results)).toBe(undefined);
    for (const [key, x] of results) {
      if (name === "rows in another order" && new Set(x.data).size < 2) continue;
      const alteredMatrix = alter(x);
      const otherResults = [...results].filter(([otherName]) => otherName !== key);
      const alteredResults = new Map(
        alteredMatrix ? [...otherResults, [key, alteredMatrix] as const] : otherResults,
      );
      expect(difference(alteredResults, results), key).not.toBe(undefined);
    }
    const extraResults = new Map([...results, ["another gradient", [...results.values()][0] as Matrix]]);
    expect(difference(extraResults, results)).not.toBe(undefined);
  });
});

function withElement(x: Matrix, index: number, alter: (value: number) => number): Matrix {
  return { ...x, data: x.data.map((value, i) => (i === index ? alter(value) : value)) };
}

/** The next f32 away from zero. */
function nextTo(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer);
  bits[0] = (bits[0] as number) + 1;
  return new Float32Array(bits.buffer)[0] as number;
}

describe("every option matters", () => {
  /** Values of other options, without which a value has no visible effect. */
  const COMPANIONS: Partial<Record<keyof StepOptions, Partial<StepOptions>>> = {
    // nvfp4 has a recipe for each variant; not every class of recipes has
    variant: { recipe: "nvfp4", layer: "mlp of gelu" },
    normalization: { layer: "mlp of gelu" },
    zeroCenteredGamma: { layer: "mlp of gelu" },
    eps: { layer: "mlp of gelu" },
    causal: { layer: "attention" },
    around: { layer: "mlp of gelu" },
    microbatches: { start: "constant" },
    frozen: { layer: "mlp of gelu" },
    input: { recipe: "mxfp8" },
  };
  /**
   * The number of values of an option that give the same bits as another value, by another computation: recomputation,
   * and a cached weight that is renewed by a flag.
   */
  const REPETITIONS: Partial<Record<keyof StepOptions, number>> = { wrap: 1, microbatches: 2 };
  /** Options that do not change bits. */
  const invisible = new Set(["nested", "savesOriginal", "delays"]);

  const digest = (plan: StepPlan): string => {
    const { seed: _, ...otherFields } = plan;
    return JSON.stringify(otherFields);
  };

  it.each(sampleCases(Object.keys(OPTIONS) as (keyof StepOptions)[]))(
    "%s: each of its values is another case",
    (name) => {
      const base = { ...PLAIN, ...COMPANIONS[name] };
      const plans = OPTIONS[name].map((value) => createPlan({ ...base, [name]: value } as StepOptions, 5, 1));
      const distinct = new Set(plans.map(digest)).size;
      expect(distinct).toBe(OPTIONS[name].length);
      if (invisible.has(name)) return;
      const planResults = plans.map((plan) =>
        JSON.stringify([...modelResults(plan, "exact")].map(([key, { data }]) => [key, [...data]])),
      );
      expect(new Set(planResults).size).toBe(OPTIONS[name].length - (REPETITIONS[name] ?? 0));
    },
  );
});
