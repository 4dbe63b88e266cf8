/** The perplexity of tiny models equals plain arithmetic, and forms of weights equal converted files. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { convertCheckpoint } from "../../../../src/checkpoints/index.js";
import { ArgumentError } from "../../../../src/errors.js";
import {
  loadCausalLM,
  type PerplexityOptions,
  type PerplexityProgress,
  perplexity,
} from "../../../../src/models/index.js";
import { tensor } from "../../../../src/ops/create.js";
import { Float8BlockScaling, MXFP8BlockScaling } from "../../../../src/recipes/block-scaled.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { plainLogits } from "../plain-decoder.js";
import {
  TINY,
  type TinyModel,
  type TinyTensor,
  tinyChoices,
  tinyModel,
  VOCABULARY,
  writeHub,
} from "../tiny-model.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const tokensOf = (count: number): number[] =>
  Array.from({ length: count }, (_, i) => (i * 17 + 3 * (i % 5)) % VOCABULARY);

let folder: string;
let count = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-perplexity-"));
});
afterAll(() => rm(folder, { recursive: true }));
async function hub(model: TinyModel): Promise<string> {
  const path = join(folder, `${count++}`);
  await writeHub(path, model);
  return path;
}

/** The perplexity of a text, window by window, from the definition of the softmax. */
function plainPerplexity(
  model: TinyModel,
  tokens: readonly number[],
  context: number,
  stride: number,
): number {
  const losses: number[] = [];
  for (let begin = 0, scoredCount = 0; scoredCount < tokens.length; begin += stride) {
    const window = tokens.slice(begin, begin + context);
    const logits = plainLogits(model, window);
    for (let i = Math.max(1, scoredCount - begin); i < window.length; i++) {
      const powers = (logits[i - 1] as readonly number[]).map(Math.exp);
      const sum = powers.reduce((total, power) => total + power, 0);
      losses.push(-Math.log((powers[window[i] as number] as number) / sum));
    }
    scoredCount = begin + window.length;
  }
  return Math.exp(losses.reduce((sum, loss) => sum + loss, 0) / losses.length);
}

describe("perplexity", () => {
  it("is that of plain arithmetic, with any windows", async () => {
    const windows = fc.record({
      context: fc.integer({ min: 4, max: 16 }),
      overlap: fc.integer({ min: 0, max: 3 }),
    });
    await fc.assert(
      fc.asyncProperty(tinyChoices, windows, async (choices, { context, overlap }) => {
        const model = tinyModel({ ...choices, window: undefined });
        const options = { context, stride: context - overlap, dtype: "f32" } as const;
        const { original } = await perplexity(backend(), await hub(model), tokensOf(20), options);
        const expected = plainPerplexity(model, tokensOf(20), context, context - overlap);
        expect(Math.abs(original.perplexity / expected - 1)).toBeLessThan(1e-5);
        expect(original.bitsPerWeight).toBe(16);
      }),
      { numRuns: draws(30, 4) },
    );
  });

  it("of a form is that of the converted file, with its bits a weight and the errors of its layers", async () => {
    const path = await hub(tinyModel(TINY));
    for (const to of ["ct-nvfp4", "modelopt-fp8", "lockstep-mxfp4"] as const) {
      const outputFolder = join(folder, `${count++}`);
      const { changes } = await convertCheckpoint(path, outputFolder, { to });
      const report = await perplexity(backend(), path, tokensOf(30), { variants: [{ weights: to }] });
      const [form] = report.variants;
      const file = await perplexity(backend(), outputFolder, tokensOf(30));
      expect({ perplexity: form?.perplexity, bitsPerWeight: form?.bitsPerWeight }).toEqual(file.original);
      const errors = [0, 1].map((layer) => {
        const layerChanges = changes.filter(({ name }) => name.startsWith(`model.layers.${layer}.`));
        const sum = (field: "noise" | "signal") =>
          layerChanges.reduce((total, change) => total + change[field], 0);
        return Math.sqrt(sum("noise") / sum("signal"));
      });
      for (const [layer, error] of errors.entries()) expect(form?.layerErrors[layer]).toBeCloseTo(error, 14);
      expect(Math.min(...errors)).toBeGreaterThan(0);
      expect(form?.meanKl).toBeGreaterThan(0);
    }
  });

  it("of a variant has the mean divergence of its tokens from the original, and the share of equal largest logits", async () => {
    const path = await hub(tinyModel(TINY));
    const tokens = tokensOf(24);
    /** The probabilities of each scored token of a single window. */
    const distributions = async (
      weights?: "ct-nvfp4" | "ct-mxfp4",
    ): Promise<readonly (readonly number[])[]> => {
      using _ = new Scope();
      using model = await loadCausalLM(backend(), path, { dtype: "f32", weights });
      const ids = tensor(backend(), Int32Array.from(tokens), [1, tokens.length], "i32");
      const logits = noGrad(() => model.forward(ids).tensor.dataSync()) as Float32Array;
      return Array.from({ length: tokens.length - 1 }, (_, row) => {
        const powers = Array.from(logits.slice(row * VOCABULARY, (row + 1) * VOCABULARY), Math.exp);
        const sum = powers.reduce((total, power) => total + power, 0);
        return powers.map((power) => power / sum);
      });
    };
    const original = await distributions();
    for (const weights of ["ct-nvfp4", "ct-mxfp4"] as const) {
      const variants = [{ weights }];
      const report = await perplexity(backend(), path, tokens, { dtype: "f32", variants });
      const variant = await distributions(weights);
      const divergence = original.map((row, i) =>
        row.reduce(
          (sum, probability, token) =>
            sum + probability * Math.log(probability / (variant[i]?.[token] as number)),
          0,
        ),
      );
      const top = (row: readonly number[] = []): number => row.indexOf(Math.max(...row));
      const equal = original.filter((row, i) => top(row) === top(variant[i])).length;
      const mean = divergence.reduce((sum, value) => sum + value, 0) / original.length;
      expect((report.variants[0]?.meanKl as number) / mean).toBeCloseTo(1, 9);
      expect(report.variants[0]?.top1Agreement).toBe(equal / original.length);
    }
  });

  it("counts codes, scales and global scales as bits of weights", async () => {
    const variants = (["ct-mxfp4", "ct-nvfp4", "bf16"] as const).map((weights) => ({ weights }));
    const report = await perplexity(backend(), await hub(tinyModel(TINY)), tokensOf(4), { variants });
    // 2 layers of 7 matrices
    const [mxfp4, nvfp4, bf16] = report.variants.map(({ bitsPerWeight }) => bitsPerWeight);
    const elements = 2 * (32 * 32 * 2 + 16 * 32 * 2 + 3 * 64 * 32);
    expect(mxfp4).toBe(4 + 8 / 32);
    expect(nvfp4).toBeCloseTo(4 + 8 / 16 + (14 * 32) / elements, 12);
    expect(bf16).toBe(16);
  });

  it("of the model itself differs in nothing, and recipes change it", async () => {
    const variants = [{}, { recipe: new MXFP8BlockScaling() }, { recipe: new Float8BlockScaling() }];
    const progress: PerplexityProgress[] = [];
    const options = {
      variants,
      context: 8,
      onProgress: (report: PerplexityProgress) => void progress.push(report),
    };
    const report = await perplexity(backend(), await hub(tinyModel(TINY)), tokensOf(20), options);
    const [unchangedVariant, ...otherVariants] = report.variants;
    expect(unchangedVariant).toEqual({
      ...report.original,
      meanKl: 0,
      top1Agreement: 1,
      layerErrors: [0, 0],
    });
    for (const { meanKl, layerErrors } of otherVariants) {
      expect(meanKl).toBeGreaterThan(0);
      expect(layerErrors).toEqual([0, 0]);
    }
    expect(report).toMatchObject({ scoredTokens: 17, context: 8, stride: 8 });
    expect(progress[0]).toEqual({ tokens: 0, totalTokens: 80 });
    expect(progress.at(-1)).toEqual({ tokens: 80, totalTokens: 80 });
    expect(progress.length).toBe(1 + 4 * 3);
  });
});

describe("perplexity refuses", () => {
  it("logits that are not finite, of the model and of a variant, with the token", async () => {
    const tinyTiedModel = tinyModel({ ...TINY, isTied: true });
    const modelWith = (value: number): TinyModel => {
      const tensors = new Map(tinyTiedModel.tensors);
      const { shape, values } = tensors.get("model.embed_tokens.weight") as TinyTensor;
      // the embedding of the token 6
      const offset = 6 * (shape[1] as number);
      tensors.set("model.embed_tokens.weight", { shape, values: values.with(offset, value) });
      return { ...tinyTiedModel, tensors };
    };
    const refusal = (model: TinyModel, options: PerplexityOptions) =>
      hub(model).then((path) => perplexity(backend(), path, [1, 2, 6, 3, 4], options));
    // its logit is NaN everywhere, because the table is also the output layer
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY])
      await expect(refusal(modelWith(value), {})).rejects.toThrow(
        /^perplexity: the original model computes (NaN|-?Infinity) as a logit of tokens\[1\]; look for/,
      );
    const overflow = { variants: [{}, { weights: "modelopt-fp8" as const }] };
    const norm = new Map(tinyTiedModel.tensors);
    norm.set("model.norm.weight", { shape: [32], values: new Float32Array(32).fill(2 ** 127) });
    await expect(refusal({ ...tinyTiedModel, tensors: norm }, overflow)).rejects.toThrow(ArgumentError);
  });

  const cases: readonly (readonly [string, readonly number[], PerplexityOptions, RegExp])[] = [
    ["one token", [1], {}, /there are 1 tokens; 2 to 1048576 are needed/],
    ["tokens outside of the vocabulary", [1, VOCABULARY], {}, /token 40 is not in the vocabulary of 40/],
    ["a context beyond the positions", [1, 2], { context: 65 }, /context is 65; the model has 64 positions/],
    ["a stride beyond the context", [1, 2], { context: 4, stride: 5 }, /stride is 5; it must be at most/],
    ["an unknown form", [1, 2], { variants: [{ weights: "int3" as "bf16" }] }, /"int3" is not one of/],
  ];
  it.each(cases)("%s", async (_title, tokens, options, message) => {
    const error = await perplexity(backend(), await hub(tinyModel(TINY)), tokens, options).catch(
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(ArgumentError);
    expect(String(error)).toMatch(message);
  });
});
