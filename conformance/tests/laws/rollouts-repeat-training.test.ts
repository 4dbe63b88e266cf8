/**
 * A rollout is bitwise equal to training: steps with a cache, in any chunks, batches, orders and pages, give each position its
 * row of one full forward pass, under every recipe whose scales belong to rows or blocks of rows, with every pair of a layer's
 * options.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import type { TransformerLayerOptions } from "../../../src/modules/attention/transformer-options.js";
import { RotaryPositionEmbedding } from "../../../src/modules/rotary-position-embedding.js";
import { TransformerLayer } from "../../../src/modules/transformer-layer.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../src/recipes/block-scaled.js";
import { Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { pairwise } from "../../arbitraries/covering.js";
import { draws, sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { fill } from "../modules/attention/drawn.js";
import { fullRows, LONGEST, type Rollout, rollouts, steppedRows } from "../modules/attention/rollout.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [HIDDEN, HEADS, WIDTH] = [64, 4, 16];

/** Recipes whose scales belong to rows of activations. Square blocks of weights belong to the weight. */
const RECIPES: Readonly<Record<string, () => Recipe | undefined>> = {
  none: () => undefined,
  block: () => new Float8BlockScaling(),
  "block, f32 scales": () => new Float8BlockScaling({ useF32Scales: true, amaxEpsilon: 1 }),
  "block, no squares": () => new Float8BlockScaling({ wBlockScalingDim: 1 }),
  mxfp8: () => new MXFP8BlockScaling(),
  "mxfp8, square": () => new MXFP8BlockScaling({ enable2dQuantization: true }),
  nvfp4: () => new NVFP4BlockScaling({ rowScaledActivation: true, disableRht: true }),
  "nvfp4, no squares": () =>
    new NVFP4BlockScaling({ rowScaledActivation: true, disableRht: true, disable2dQuantization: true }),
};

const FORMS: Readonly<Record<string, TransformerLayerOptions>> = {
  "pre-norm": {},
  "post-norm": { outputLayernorm: true },
  "residuals from norms": { applyResidualConnectionPostLayernorm: true },
  "in parallel": { parallelAttentionMlp: true },
};

const TABLE = {
  recipe: Object.keys(RECIPES),
  form: Object.keys(FORMS),
  dtype: ["bf16", "f16", "f32"] as readonly WideDType[],
  format: ["bshd", "sbhd", "thd"],
  pageSize: [undefined, 4, 8],
  groups: [4, 2, 1],
  rotary: ["none", "halves", "neighbours"],
  qkNormType: [undefined, "RMSNorm", "LayerNorm", "L2Normalization"],
  softmaxType: ["vanilla", "off-by-one", "learnable"],
  window: [undefined, [5, 0]],
  softcap: [0, 10],
  normalization: ["LayerNorm", "RMSNorm"],
  activation: ["gelu", "swiglu"],
  fuseQkvParams: [false, true],
} as const;

type Case = { readonly [K in keyof typeof TABLE]: (typeof TABLE)[K][number] };

let state = 1;
const CASES = pairwise(TABLE, (n) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return (state >>> 8) % n;
}).map((testCase): Case => (testCase.recipe.startsWith("nvfp4") ? { ...testCase, dtype: "bf16" } : testCase));

/** The rows of a rollout and of full forward passes. */
function rowsOf(testCase: Case, run: Rollout, recipe: Recipe | undefined): readonly [string[][], string[][]] {
  using _scope = new Scope();
  const { groups, rotary, window, ...options } = testCase;
  using layer = new TransformerLayer(backend(), HIDDEN, 128, HEADS, {
    ...{ ...FORMS[testCase.form], dtype: testCase.dtype, attnInputFormat: testCase.format, hiddenDropout: 0 },
    ...{ numGqaGroups: groups, softcap: options.softcap, softmaxType: options.softmaxType },
    ...{ normalization: options.normalization, activation: options.activation },
    fuseQkvParams: options.fuseQkvParams,
    ...(options.qkNormType ? { qkNormType: options.qkNormType } : {}),
    ...(window ? { windowSize: window } : {}),
  });
  fill(11, layer);
  const angles =
    rotary === "none"
      ? undefined
      : new RotaryPositionEmbedding(backend(), WIDTH, { interleaved: rotary === "neighbours" }).forward(
          LONGEST,
        );
  const cacheForm = {
    format: testCase.format,
    pageSize: testCase.pageSize,
    dtype: testCase.dtype,
    heads: [groups, WIDTH],
  } as const;
  const inRegion = (body: () => string[][]): string[][] =>
    noGrad(() => (recipe ? autocast({ recipe }, body) : body()));
  return [
    inRegion(() => steppedRows(layer, run, cacheForm, angles)),
    inRegion(() => fullRows(layer, run, cacheForm, angles)),
  ];
}

describe("steps with a cache have the bits of the full forward pass", () => {
  const titled = CASES.map(
    (testCase) =>
      [
        `${testCase.recipe}, ${testCase.form}, ${testCase.dtype}, pages ${testCase.pageSize}`,
        testCase,
      ] as const,
  );
  it.each(sampleCases(titled, 3))("%s", (_title, testCase) => {
    fc.assert(
      fc.property(rollouts, (run) => {
        const [steps, full] = rowsOf(testCase, run, RECIPES[testCase.recipe]?.());
        expect(steps).toEqual(full);
      }),
      { numRuns: draws(8, 2) },
    );
  });
});

describe("recipes with a scale of all rows", () => {
  const OTHERS: Readonly<Record<string, () => Recipe>> = {
    current: () => new Float8CurrentScaling(),
    "nvfp4, one scale": () => new NVFP4BlockScaling({ disableStochasticRounding: true }),
    "block, squares of activations": () =>
      new Float8BlockScaling({ xBlockScalingDim: 2, wBlockScalingDim: 1, useF32Scales: true }),
  };
  it.each(Object.entries(OTHERS))(
    "%s: a rollout has other bits, as docs/rollout.md says",
    (_name, recipe) => {
      const run: Rollout = {
        lengths: [9, 5],
        steps: [
          new Map([[0, 6]]),
          new Map([
            [0, 1],
            [1, 5],
          ]),
          new Map([[0, 2]]),
        ],
      };
      const testCase = { ...(CASES[0] as Case), dtype: "bf16", recipe: "none" } as const;
      const [steps, full] = rowsOf(testCase, run, recipe());
      expect(steps).not.toEqual(full);
    },
  );
});
