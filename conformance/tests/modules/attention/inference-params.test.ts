import { describe, expect } from "vitest";
import { ArgumentError } from "../../../../src/errors.js";
import { InferenceParams } from "../../../../src/modules/attention/inference-params.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { scoped, useBackend } from "../../harness/suite.js";
import { waves } from "./drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [_HIDDEN, _HEADS, _GROUPS, _WIDTH, _LONGEST] = [64, 4, 2, 16, 24];

const _RECIPES: readonly (readonly [string, Recipe | undefined])[] = [
  ["none", undefined],
  ["block", new Float8BlockScaling()],
  ["mxfp8", new MXFP8BlockScaling()],
  ["nvfp4", new NVFP4BlockScaling({ rowScaledActivation: true, disableRht: true })],
];

describe("a cache", () => {
  const cacheOf = (options = {}) =>
    new InferenceParams(backend(), 2, 8, { numHeadsKv: 1, headDimK: 16, ...options });

  scoped("counts the positions of its sequences, and forgets those that a step leaves out", () => {
    using cache = cacheOf({ isPaged: true, pageSize: 4, totalNumPages: 3 });
    cache.preStep(new Map([["a", 5]]));
    expect(() =>
      cache.preStep(
        new Map([
          ["a", 1],
          ["b", 5],
        ]),
      ),
    ).toThrow("pages");
    expect([...cache.sequences]).toEqual([["a", 5]]);
    cache.preStep(new Map([["b", 8]]));
    expect([...cache.sequences]).toEqual([["b", 8]]);
    expect(() => cache.preStep(new Map([["b", 1]]))).toThrow("maxSequenceLength");
    cache.reset();
    expect(cache.sequences.size).toBe(0);
    cache.preStep(new Map([["b", 1]]));
    expect([...cache.sequences]).toEqual([["b", 1]]);
  });

  scoped("of pages that do not divide a sequence, and steps that are no steps, are refused", () => {
    expect(() => cacheOf({ isPaged: true, pageSize: 3 })).toThrow("multiple");
    expect(() => cacheOf({ isPaged: true })).toThrow("pageSize");
    expect(() => cacheOf({ pageSize: 4 })).toThrow("isPaged");
    using cache = cacheOf();
    expect(() =>
      cache.preStep(
        new Map([
          [0, 1],
          [1, 1],
          [2, 1],
        ]),
      ),
    ).toThrow("maxBatchSize");
    expect(() => cache.preStep(new Map([[0, -1]]))).toThrow(ArgumentError);
    expect(() => cache.preStep([] as never)).toThrow("Map");
  });

  scoped("is refused outside noGrad and before a step", () => {
    using cache = cacheOf();
    using layer = new TransformerLayer(backend(), 16, 32, 1, { hiddenDropout: 0 });
    const x = waves(backend(), 1, [1, 1, 16]);
    const call = { inferenceParams: cache, selfAttnMaskType: "padding_causal" } as const;
    expect(() => noGrad(() => layer.forward(x, call))).toThrow("preStep");
    cache.preStep(new Map([[0, 1]]));
    expect(() => layer.forward(x, call)).toThrow("noGrad");
  });
});
