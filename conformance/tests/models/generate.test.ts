/** Generation: each token follows from the logits of one pass over all tokens before it. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { type CausalLM, type GenerateOptions, loadCausalLM } from "../../../src/models/index.js";
import { sample } from "../../../src/models/sampling.js";
import { tensor } from "../../../src/ops/create.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { TINY, tinyModel, VOCABULARY, writeHub } from "./tiny-model.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-models-"));
  await writeHub(folder, tinyModel(TINY));
});
afterAll(() => rm(folder, { recursive: true }));

type Steps = readonly (readonly (number | undefined)[])[];

async function generateAll(
  prompts: readonly (readonly number[])[],
  options: GenerateOptions,
): Promise<Steps> {
  using model = await loadCausalLM(backend(), folder);
  const steps: (readonly (number | undefined)[])[] = [];
  for await (const step of model.generate(prompts, options)) steps.push(step);
  return steps;
}

async function generateOne(model: CausalLM): Promise<number | undefined> {
  for await (const [token] of model.generate([[1, 2]], { maxNewTokens: 1 })) return token;
  return undefined;
}

function logitsAfter(model: CausalLM, text: readonly number[]): Tensor {
  using scope = new Scope();
  const ids = tensor(backend(), Int32Array.from(text), [1, text.length], "i32");
  return scope.keep(noGrad(() => model.forward(ids, { logitsToKeep: 1 })).tensor);
}

/** The token with the largest logit after a text, the lowest one of equal logits, from one forward pass. */
function likeliestToken(model: CausalLM, text: readonly number[]): number {
  using _scope = new Scope();
  const ids = tensor(backend(), Int32Array.from(text), [1, text.length], "i32");
  const logits = noGrad(() => model.forward(ids, { logitsToKeep: 1 })).tensor.dataSync();
  return logits.indexOf(Math.max(...logits));
}

/** The expected result of generating one sequence, by a pass over the whole text for each token. */
function expectedTokens(
  model: CausalLM,
  prompt: readonly number[],
  count: number,
  endTokens: readonly number[],
) {
  const tokens: number[] = [];
  while (tokens.length < count && !endTokens.includes(tokens.at(-1) ?? -1))
    tokens.push(likeliestToken(model, [...prompt, ...tokens]));
  return tokens;
}

describe("generate", () => {
  const token = fc.integer({ min: 0, max: VOCABULARY - 1 });
  const prompts = fc.array(fc.array(token, { minLength: 1, maxLength: 9 }), { minLength: 1, maxLength: 3 });
  const options = fc.record({
    maxNewTokens: fc.integer({ min: 1, max: 5 }),
    chunkSize: fc.constantFrom(1, 2, 4, 256),
    pageSize: fc.constantFrom(undefined, 4),
    eosTokenIds: fc.array(token, { maxLength: 12 }),
  });

  it("chooses what one pass over each text chooses, in any batch, chunks and pages", async () => {
    using model = await loadCausalLM(backend(), folder);
    await fc.assert(
      fc.asyncProperty(prompts, options, async (texts, form) => {
        const steps: (readonly (number | undefined)[])[] = [];
        for await (const step of model.generate(texts, form)) steps.push(step);
        const expected = texts.map((text) =>
          expectedTokens(model, text, form.maxNewTokens, form.eosTokenIds),
        );
        expect(steps.length).toBe(Math.max(...expected.map(({ length }) => length)));
        for (const [i, tokens] of expected.entries())
          expect(steps.map((step) => step[i]).filter((token) => token !== undefined)).toEqual(tokens);
      }),
      { numRuns: draws(40) },
    );
  });

  it("has the same tokens under a recipe, whose weights it quantizes once, also after they have changed", async () => {
    const path = await mkdtemp(join(tmpdir(), "lockstep-models-"));
    await writeHub(path, tinyModel({ ...TINY, family: "qwen3_moe" }));
    using model = await loadCausalLM(backend(), path, { recipe: new MXFP8BlockScaling() });
    await rm(path, { recursive: true });
    const texts = new Set<string>();
    for (let run = 0; run < 4; run++) {
      const text = [run, 3, 11];
      const tokens: (number | undefined)[] = [];
      for await (const [token] of model.generate([text], { maxNewTokens: 6, eosTokenIds: [] }))
        tokens.push(token);
      expect(tokens).toEqual(expectedTokens(model, text, 6, []));
      texts.add(tokens.join());
      for (const { tensor: weight } of model.parameters())
        weight.write((weight.dataSync() as Uint16Array).toReversed());
    }
    expect(texts.size).toBeGreaterThan(1);
  });

  it("gives the chooser the logits of each running sequence, and takes its tokens", async () => {
    const calls: (readonly [readonly number[], readonly number[]])[] = [];
    const chooseTokens = async (logits: Tensor, sequences: readonly number[]): Promise<number[]> => {
      calls.push([logits.shape, sequences]);
      return sequences.map((sequence) => 5 + sequence);
    };
    const steps = await generateAll([[1, 2, 3], [4]], { chooseTokens, maxNewTokens: 3, eosTokenIds: [6] });
    expect(steps).toEqual([
      [5, 6],
      [5, undefined],
      [5, undefined],
    ]);
    expect(calls).toEqual([
      [
        [2, VOCABULARY],
        [0, 1],
      ],
      [[1, VOCABULARY], [0]],
      [[1, VOCABULARY], [0]],
    ]);
  });

  it("ends each sequence at the last position of the model, however many tokens are requested", async () => {
    using model = await loadCausalLM(backend(), folder);
    const { maxPositionEmbeddings: positions } = model.config;
    const prompt = (length: number): number[] => new Array<number>(length).fill(3);
    const lengths = [positions - 1, positions - 3, positions - 9];
    for (const pageSize of [undefined, 5]) {
      const steps: (readonly (number | undefined)[])[] = [];
      const form = { maxNewTokens: 6, eosTokenIds: [], pageSize };
      for await (const step of model.generate(lengths.map(prompt), form)) steps.push(step);
      const counts = lengths.map((_, i) => steps.filter((step) => step[i] !== undefined).length);
      expect(counts).toEqual([1, 3, 6]);
    }
    expect(() => model.generate([[1], prompt(positions)])).toThrow(
      "prompts[1] has 64 tokens and the model 64 positions; give at most 63 tokens",
    );
  });

  it("refuses the logits that sample refuses", async () => {
    using model = await loadCausalLM(backend(), folder);
    const weight = model.namedParameters().get("lm_head.weight")?.tensor as Tensor;
    const codes = weight.dataSync() as Uint16Array;
    const tokenOrRefusal = async (choose: () => Promise<unknown>): Promise<unknown> => {
      try {
        return await choose();
      } catch (error) {
        expect(error).toBeInstanceOf(ArgumentError);
        return "refused";
      }
    };
    const outcomes: unknown[] = [];
    // NaN, the infinities, of which one is the largest logit, and a number
    for (const code of [0x7fc0, 0x7f80, 0xff80, 0x4000]) {
      weight.write(codes.map((value, i) => (i === 35 ? code : value)));
      using logits = logitsAfter(model, [1, 2]);
      const sampledTokens = await tokenOrRefusal(async () => (await sample(logits))[0]);
      expect(await tokenOrRefusal(() => generateOne(model))).toBe(sampledTokens);
      outcomes.push(sampledTokens);
    }
    expect(outcomes.map((outcome) => outcome === "refused").sort()).toEqual([false, false, true, true]);
    expect(outcomes[0]).toBe("refused");
  });

  it("frees its cache when the caller stops early", async () => {
    using model = await loadCausalLM(backend(), folder);
    const liveBefore = backend().memoryUse().live;
    for await (const _ of model.generate([[1, 2]], { eosTokenIds: [] })) break;
    expect(backend().memoryUse().live - liveBefore).toBeLessThanOrEqual(2 * 256 * 8 * 4); // tables of angles
  });

  it.each([
    ["too few", () => [1]],
    ["one outside of the vocabulary", () => [1, VOCABULARY]],
    ["no list", () => 3 as unknown],
  ])("refuses %s of chosen tokens", async (_title, choose) => {
    const chooseTokens = choose as NonNullable<GenerateOptions["chooseTokens"]>;
    await expect(generateAll([[1], [2]], { chooseTokens })).rejects.toThrow(ArgumentError);
  });
});
