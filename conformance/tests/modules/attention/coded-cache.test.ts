/** Models with a cache of e4m3 codes: the values that a step reads, the scales of a checkpoint, and the law of rollouts. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ArgumentError, FileError } from "../../../../src/errors.js";
import { type CausalLM, loadCausalLM } from "../../../../src/models/index.js";
import { InferenceParams } from "../../../../src/modules/attention/inference-params.js";
import { DotProductAttention } from "../../../../src/modules/dot-product-attention.js";
import { tensor } from "../../../../src/ops/create.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { draws } from "../../harness/draws.js";
import { uniform } from "../../harness/plain-attention.js";
import { useBackend } from "../../harness/suite.js";
import {
  TINY,
  type TinyModel,
  tinyChoices,
  tinyModel,
  VOCABULARY,
  writeHub,
} from "../../models/tiny-model.js";
import { LONGEST, type Rollout, rollouts } from "./rollout.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

let folder: string;
let count = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-cache-"));
});
afterAll(() => rm(folder, { recursive: true }));

async function hub(model: TinyModel): Promise<string> {
  const path = join(folder, `${count++}`);
  await writeHub(path, model, { type: "F32" });
  return path;
}

/** The model with scales of its cache, by the names that `nameOf` gives. Scales are numbers of f32. */
function withScales(
  model: TinyModel,
  nameOf: (layer: number, operand: "k" | "v") => string,
  seed: number,
): TinyModel {
  const draw = uniform(seed);
  const tensors = new Map(model.tensors);
  for (let layer = 0; layer < Number(model.config.num_hidden_layers); layer++)
    for (const operand of ["k", "v"] as const)
      tensors.set(nameOf(layer, operand), {
        shape: [1],
        values: Float32Array.of(0.001 + 0.01 * Math.abs(draw())),
      });
  return { ...model, tensors };
}
const ofAttention = (layer: number, operand: string): string =>
  `model.layers.${layer}.self_attn.${operand}_scale`;

const tokenOf = (sequence: number, position: number): number =>
  (sequence * 17 + position * 7 + 3) % VOCABULARY;

/** The bits of the logits of each position of each sequence, in steps with a cache. */
function rowsOf(model: CausalLM, { lengths, steps }: Rollout, form: object): string[][] {
  using cache = model.createCache({ maxBatchSize: 3, maxSequenceLength: LONGEST, ...form });
  const rows: string[][] = lengths.map(() => []);
  const { vocabSize } = model.config;
  for (const step of steps) {
    using _scope = new Scope();
    cache.preStep(step);
    const longest = Math.max(...step.values());
    const ids = [...step].flatMap(([sequence, length]) => {
      const rowsBefore = rows[sequence]?.length ?? 0;
      return Array.from({ length: longest }, (_, i) => (i < length ? tokenOf(sequence, rowsBefore + i) : 1));
    });
    const tokens = tensor(backend(), Int32Array.from(ids), [step.size, longest], "i32");
    const logits = model.forward(tokens, { inferenceParams: cache }).tensor.dataSync() as Float32Array;
    for (const [b, [sequence, length]] of [...step].entries())
      for (let i = 0; i < length; i++) {
        const start = (b * longest + i) * vocabSize;
        rows[sequence]?.push(Buffer.from(logits.slice(start, start + vocabSize).buffer).toString("hex"));
      }
  }
  return rows;
}

/** Each sequence in one step. */
const atOnce = ({ lengths }: Rollout): Rollout => ({
  lengths,
  steps: lengths.map((length, sequence) => new Map([[sequence, length]])),
});

describe("a cache of e4m3 codes", () => {
  it("gives the bits of one step over the sequence, in any chunks, batches, orders and pages", async () => {
    const forms = fc.record({
      pageSize: fc.constantFrom(undefined, 4, 8),
      dtype: fc.constantFrom("bf16", "f32"),
    });
    await fc.assert(
      fc.asyncProperty(tinyChoices, rollouts, forms, fc.boolean(), async (choices, run, form, hasScales) => {
        const { pageSize, dtype } = form;
        const tinyModelChoice = tinyModel(choices);
        const scaledModel = hasScales
          ? withScales(tinyModelChoice, ofAttention, choices.seed)
          : tinyModelChoice;
        using model = await loadCausalLM(backend(), await hub(scaledModel), { dtype });
        noGrad(() => {
          const pages = pageSize === undefined ? {} : { isPaged: true, pageSize };
          const expected = rowsOf(model, atOnce(run), { format: "e4m3" });
          expect(rowsOf(model, run, { format: "e4m3", ...pages })).toEqual(expected);
          expect(rowsOf(model, atOnce(run), {})).not.toEqual(expected);
        });
      }),
      { numRuns: draws(40, 6) },
    );
  });

  it("is read as the nearest codes of f32(x · f32(1 / scale)), times the scale", () => {
    using _scope = new Scope();
    const [length, width, kScale, vScale] = [6, 16, Math.fround(0.013), Math.fround(0.3)];
    const draw = uniform(9);
    // some keys are beyond 448 times their scale
    const drawValues = (factor: number) =>
      Float32Array.from({ length: length * width }, () => factor * draw());
    const [q, k, v] = [drawValues(1), drawValues(8), drawValues(8)] as const;
    const ownTensor = (values: Float32Array) => tensor(backend(), values, [1, length, 1, width], "f32");
    const attend = (keys: Float32Array, values: Float32Array, options: object) => {
      using cache = new InferenceParams(backend(), 1, length, {
        ...{ numHeadsKv: 1, headDimK: width, dtype: "f32", ...options },
      });
      cache.preStep(new Map([[0, length]]));
      using layer = new DotProductAttention(backend(), 1, width, {
        dtype: "f32",
        qkvFormat: "bshd",
        layerNumber: 2,
      });
      const call = { inferenceParams: cache, attnMaskType: "padding_causal" } as const;
      const out = noGrad(() => layer.forward(ownTensor(q), ownTensor(keys), ownTensor(values), call));
      return [...out.tensor.dataSync()];
    };
    const decodedUnder = (scale: number) => (x: number) =>
      Math.fround(nearest(Math.fround(x * Math.fround(1 / scale))) * scale);
    const [kScales, vScales] = [
      [1, kScale],
      [1, vScale],
    ];
    // a scale that is left out is 1
    for (const scales of [{}, { kScales }, { vScales }, { kScales, vScales }] as const) {
      const keys = k.map(decodedUnder(scales.kScales?.[1] ?? 1));
      const values = v.map(decodedUnder(scales.vScales?.[1] ?? 1));
      expect(attend(k, v, { format: "e4m3", ...scales }), Object.keys(scales).join()).toEqual(
        attend(keys, values, {}),
      );
    }
  });
});

/** The number of e4m3 nearest to x, to even; numbers beyond 448 become 448. */
function nearest(x: number): number {
  const size = Math.abs(x);
  if (size >= 448) return Math.sign(x) * 448;
  const step = 2 ** (Math.max(-6, Math.floor(Math.log2(size || 1e-9))) - 3);
  const quotient = size / step;
  const [below, rest] = [Math.floor(quotient), quotient - Math.floor(quotient)];
  const isUp = rest > 0.5 || (rest === 0.5 && below % 2 === 1);
  return Math.sign(x) * Math.min(448, (below + (isUp ? 1 : 0)) * step);
}

describe("the scales of a checkpoint", () => {
  const PLACES: readonly (readonly [string, (layer: number, operand: string) => string])[] = [
    ["compressed-tensors", ofAttention],
    ["ModelOpt", (layer, operand) => `model.layers.${layer}.self_attn.${operand}_proj.${operand}_scale`],
    ["vLLM", (layer, operand) => `model.layers.${layer}.self_attn.attn.${operand}_scale`],
  ];
  it.each(PLACES)("are read from the names of %s", async (_, nameOf) => {
    const scaledModel = withScales(tinyModel(TINY), nameOf, 3);
    using model = await loadCausalLM(backend(), await hub(scaledModel));
    const scalesOf = (operand: "k" | "v") =>
      [0, 1].map((layer) => scaledModel.tensors.get(nameOf(layer, operand))?.values[0]);
    expect(model.cacheScales).toEqual({ k: scalesOf("k"), v: scalesOf("v") });
  });

  it("are undefined if a layer has none, and equal if a layer has one", async () => {
    using unscaledModel = await loadCausalLM(backend(), await hub(tinyModel(TINY)));
    expect(unscaledModel.cacheScales).toBeUndefined();
    const tensors = new Map(tinyModel(TINY).tensors);
    for (const layer of [0, 1])
      tensors.set(`model.layers.${layer}.self_attn.kv_scale`, {
        shape: [],
        values: Float32Array.of(0.5 + layer),
      });
    using loadedModel = await loadCausalLM(backend(), await hub({ ...tinyModel(TINY), tensors }));
    expect(loadedModel.cacheScales).toEqual({ k: [0.5, 1.5], v: [0.5, 1.5] });
  });

  it("are refused if a layer lacks a scale, has several, or has a scale that is not above 0", async () => {
    const { config, tensors } = withScales(tinyModel(TINY), ofAttention, 3);
    const name = ofAttention(0, "k");
    const otherTensors = new Map([...tensors].filter(([tensorName]) => tensorName !== name));
    const set = (...values: readonly number[]): TinyModel["tensors"] =>
      new Map(otherTensors).set(name, { shape: [values.length], values: Float32Array.from(values) });
    for (const [names, message] of [
      [otherTensors, /model\.layers\.0\.self_attn: has v_scale alone/],
      [set(0), /self_attn\.k_scale" is 0; a scale is above 0/],
      [set(1, 2), /self_attn\.k_scale" is \[2\]; a cache has one scale/],
    ] as const) {
      const path = await hub({ config, tensors: names });
      const error = await loadCausalLM(backend(), path).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(FileError);
      expect(String(error)).toMatch(message);
    }
  });

  it("need a format", () => {
    const options = { numHeadsKv: 1, headDimK: 16, kScales: [1] };
    expect(() => new InferenceParams(backend(), 1, 8, options)).toThrow(ArgumentError);
  });
});
