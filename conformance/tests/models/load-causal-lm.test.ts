/** Models of tiny random weights, loaded from files that the tests write. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { convertCheckpoint } from "../../../src/checkpoints/index.js";
import { FileError, OutOfMemoryError } from "../../../src/errors.js";
import { type LoadCausalLMOptions, loadCausalLM } from "../../../src/models/index.js";
import { tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Scope } from "../../../src/tensor/scope.js";
import { u32 } from "../checkpoints/gguf/files.js";
import { draws, sampleCases } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";
import { plainLogits } from "./plain-decoder.js";
import { TINY, type TinyModel, tinyChoices, tinyModel, writeGguf, writeHub } from "./tiny-model.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const TOKENS = [3, 14, 15, 9, 2, 6, 5, 35, 8, 9, 7, 9];

let folder: string;
let count = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-models-"));
});
afterAll(() => rm(folder, { recursive: true }));
const newFolder = (): string => join(folder, `${count++}`);

/** The logits of all positions of `TOKENS`. */
async function logitsOf(path: string, options: LoadCausalLMOptions = {}): Promise<Float32Array> {
  using model = await loadCausalLM(backend(), path, options);
  using _scope = new Scope();
  const ids = tensor(backend(), Int32Array.from(TOKENS), [1, TOKENS.length], "i32");
  return noGrad(() => model.forward(ids).tensor.dataSync().slice() as Float32Array);
}

async function hub(model: TinyModel, options: Parameters<typeof writeHub>[2] = {}): Promise<string> {
  const path = newFolder();
  await writeHub(path, model, options);
  return path;
}

const bits = (values: Float32Array): string => Buffer.from(values.buffer).toString("hex");

describe("factors of frequencies in a GGUF file", () => {
  const model = tinyModel({ ...TINY, rope: "llama3" });

  it("give the logits of the rule llama3", async () => {
    const path = `${newFolder()}.gguf`;
    await writeGguf(path, model, "BF16");
    const actual = await logitsOf(path, { dtype: "f32" });
    const expected = plainLogits(model, TOKENS).flat();
    const scale = Math.max(...expected.map(Math.abs));
    const error = Math.max(...expected.map((value, i) => Math.abs(value - (actual[i] as number)))) / scale;
    expect(error).toBeLessThan(2e-5);
  });

  it("are refused beside a rule in the metadata, for heads of another width, and if one is not above 0", async () => {
    const path = `${newFolder()}.gguf`;
    const rule = [
      ["llama.rope.scaling.type", u32(8), "linear"],
      ["llama.rope.scaling.factor", u32(6), new Uint8Array(Float32Array.of(2).buffer)],
    ];
    await writeGguf(path, model, "BF16", rule);
    await expect(loadCausalLM(backend(), path)).rejects.toThrow(
      /"rope_freqs.weight" and the metadata both scale/,
    );
    const tensors = new Map(model.tensors).set("rope_freqs.weight", {
      shape: [3],
      values: Float32Array.of(1, 2, 3),
    });
    await writeGguf(path, { config: tinyModel(TINY).config, tensors }, "BF16");
    await expect(loadCausalLM(backend(), path)).rejects.toThrow(
      /has 3 numbers; heads have 4 pairs of elements/,
    );
    tensors.set("rope_freqs.weight", { shape: [4], values: Float32Array.of(1, 2, 0, 3) });
    await writeGguf(path, { config: tinyModel(TINY).config, tensors }, "BF16");
    await expect(loadCausalLM(backend(), path)).rejects.toThrow(/has a number that is not above 0/);
  });
});

describe("the folder that a conversion of a GGUF file writes", () => {
  it("has the configuration and the logits of the file", async () => {
    const types = fc.constantFrom("F32", "F16", "BF16");
    await fc.assert(
      fc.asyncProperty(tinyChoices, types, fc.constantFrom("bf16", "f32"), async (choices, type, to) => {
        const path = `${newFolder()}.gguf`;
        await writeGguf(path, tinyModel({ ...choices, window: undefined }), type);
        const wide = newFolder();
        await convertCheckpoint(path, wide, { to });
        for (const dtype of ["bf16", "f32"] as const)
          expect(bits(await logitsOf(wide, { dtype }))).toBe(bits(await logitsOf(path, { dtype })));
        const configs: object[] = [];
        for (const modelPath of [path, wide]) {
          using model = await loadCausalLM(backend(), modelPath);
          configs.push({ ...model.config, dtype: undefined });
        }
        expect(configs[1]).toEqual(configs[0]);
      }),
      { numRuns: draws(60) },
    );
  });

  it("is refused if no architecture has its names", async () => {
    const path = `${newFolder()}.gguf`;
    await writeGguf(path, tinyModel(TINY), "BF16");
    const wide = newFolder();
    await convertCheckpoint(path, wide, { to: "bf16" });
    const file = join(wide, "config.json");
    const config = JSON.parse(await readFile(file, "utf8")) as object;
    await writeFile(file, JSON.stringify({ ...config, model_type: "mistral" }));
    await expect(loadCausalLM(backend(), wide)).rejects.toThrow(
      /the tensors have names of GGUF files, which are not known for mistral/,
    );
  });
});

describe("the model of a folder", () => {
  it("computes what plain arithmetic does, in every family", async () => {
    await fc.assert(
      fc.asyncProperty(tinyChoices, async (choices) => {
        const model = tinyModel(choices);
        const actual = await logitsOf(await hub(model), { dtype: "f32" });
        const expected = plainLogits(model, TOKENS).flat();
        const scale = Math.max(...expected.map(Math.abs));
        expect(scale).toBeGreaterThan(0.01);
        const error =
          Math.max(...expected.map((value, i) => Math.abs(value - (actual[i] as number)))) / scale;
        expect(error).toBeLessThan(2e-5);
      }),
      { numRuns: draws(60) },
    );
  });

  it("has the same bits in one file or several, in types that have the values", async () => {
    const model = tinyModel({ ...TINY, bias: true });
    const expected = bits(await logitsOf(await hub(model)));
    for (const options of [{ type: "F32" }, { type: "F16", shards: 2 }, { shards: 3 }] as const)
      expect(bits(await logitsOf(await hub(model, options)))).toBe(expected);
  });

  it("names its parameters as the file does", async () => {
    const model = tinyModel({ ...TINY, family: "qwen3", bias: true });
    using loadedModel = await loadCausalLM(backend(), await hub(model));
    const shapes = (shapesOf: Iterable<readonly [string, { readonly shape: readonly number[] }]>) =>
      [...shapesOf].map(([name, { shape }]) => `${name} ${shape}`).sort();
    expect(shapes(loadedModel.namedParameters())).toEqual(shapes(model.tensors));
    expect(loadedModel.config.layers[0]?.attention.headNorms).toBe(true);
    expect(loadedModel.dtype).toBe("bf16");
  });

  it("multiplies by the table of embeddings if they are tied", async () => {
    const tiedModel = tinyModel({ ...TINY, isTied: true });
    const table = tiedModel.tensors.get("model.embed_tokens.weight") as NonNullable<
      ReturnType<typeof tiedModel.tensors.get>
    >;
    const copiedTensors = new Map([...tiedModel.tensors, ["lm_head.weight", table] as const]);
    const expected = bits(await logitsOf(await hub(tiedModel)));
    const untiedModel = {
      config: { ...tiedModel.config, tie_word_embeddings: false },
      tensors: copiedTensors,
    };
    expect(bits(await logitsOf(await hub(untiedModel)))).toBe(expected);
    expect(bits(await logitsOf(await hub({ ...tiedModel, tensors: copiedTensors })))).toBe(expected);
  });

  it("has the bits of the converted file if it is quantized", async () => {
    const wide = await hub(tinyModel(TINY));
    const forms = [
      "ct-nvfp4",
      "deepseek-fp8-block",
      "lockstep-mxfp8",
      "torchao-mxfp4-floor",
      "ct-fp8-tensor",
    ] as const;
    for (const to of sampleCases(forms)) {
      const [quantizedFolder, secondModel] = [newFolder(), newFolder()];
      await convertCheckpoint(wide, quantizedFolder, { to });
      await convertCheckpoint(quantizedFolder, secondModel, { to: "bf16" });
      const actual = bits(await logitsOf(quantizedFolder));
      expect(actual).toBe(bits(await logitsOf(secondModel)));
      expect(actual).not.toBe(bits(await logitsOf(wide)));
      // and without a file
      expect(bits(await logitsOf(wide, { weights: to }))).toBe(actual);
    }
    const expected = bits(await logitsOf(wide));
    expect(bits(await logitsOf(wide, { weights: "bf16" }))).toBe(expected);
    expect(bits(await logitsOf(wide, { weights: "as stored" }))).toBe(expected);
  });
});

describe("the model of a GGUF file", () => {
  it("has the bits of the folder with the same values", async () => {
    const choices = tinyChoices.filter(({ rope }) => rope !== "llama3");
    await fc.assert(
      fc.asyncProperty(choices, fc.constantFrom("F32", "F16", "BF16"), async (choices, type) => {
        // files of experts do not say whether probabilities are normalized: they are
        const isTied = choices.isTied && choices.family !== "qwen3_moe";
        const model = tinyModel({ ...choices, isTied, window: undefined });
        const path = `${newFolder()}.gguf`;
        await writeGguf(path, model, type);
        expect(bits(await logitsOf(path))).toBe(bits(await logitsOf(await hub(model))));
      }),
      { numRuns: draws(40) },
    );
  });
});

describe("a checkpoint that is no such model is refused", () => {
  const model = tinyModel(TINY);
  const withoutTensor = (name: string): TinyModel => ({
    ...model,
    tensors: new Map([...model.tensors].filter(([otherName]) => otherName !== name)),
  });
  const withTensor = (name: string, shape: readonly number[]): TinyModel => {
    const values = new Float32Array(shape.reduce((product, size) => product * size, 1));
    return { ...model, tensors: new Map([...model.tensors, [name, { shape, values }]]) };
  };
  const withConfig = (fields: object): TinyModel => ({ ...model, config: { ...model.config, ...fields } });
  const downProjection = "model.layers.1.mlp.down_proj.weight";
  const cases: readonly (readonly [string, TinyModel, RegExp])[] = [
    [
      "a missing tensor",
      withoutTensor(downProjection),
      /tensors are missing \(1\): model\.layers\.1\.mlp\.down_proj\.weight;/,
    ],
    ["a missing output layer", withoutTensor("lm_head.weight"), /missing \(1\): lm_head\.weight/],
    [
      "an unexpected tensor",
      withTensor("model.extra.weight", [2, 32]),
      /no parameter \(1\): model\.extra\.weight/,
    ],
    [
      "another shape",
      withTensor(downProjection, [32, 40]),
      /down_proj\.weight" is \[32,40\]; the configuration needs \[32,64\]/,
    ],
    ["fewer layers", withConfig({ num_hidden_layers: 1 }), /no parameter \(9\): model\.layers\.1\./],
    [
      "an unknown family",
      withConfig({ model_type: "gpt2" }),
      /model_type is "gpt2"; the models that can run are/,
    ],
    [
      "a wrong field",
      withConfig({ hidden_size: "32" }),
      /hidden_size is "32"; it must be a whole number from 1/,
    ],
    ["a missing field", withConfig({ vocab_size: null }), /vocab_size is missing/],
    [
      "an unknown activation",
      withConfig({ hidden_act: "mish" }),
      /hidden_act is "mish"; it must be one of silu/,
    ],
    [
      "heads that do not divide",
      withConfig({ num_key_value_heads: 3 }),
      /must be a divisor of num_attention_heads, 4/,
    ],
    [
      "an unknown rule",
      withConfig({ rope_scaling: { type: "longrope" } }),
      /type is "longrope"; it must be one of default/,
    ],
  ];
  it.each(cases)("%s", async (_title, files, message) => {
    const path = await hub(files);
    const error = await loadCausalLM(backend(), path).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(FileError);
    expect(String(error)).toMatch(message);
  });

  it("too many layers", async () => {
    const path = `${newFolder()}.gguf`;
    await writeGguf(path, withConfig({ num_hidden_layers: 2 ** 31 }), "BF16");
    await expect(loadCausalLM(backend(), path)).rejects.toThrow(
      /llama\.block_count is 2147483648; it must be at most 4096/,
    );
  });

  it("a configuration that claims a quantization", async () => {
    const path = await hub(withConfig({ quantization_config: { quant_method: "fp8" } }));
    await expect(loadCausalLM(backend(), path)).rejects.toThrow(/config-empty/);
  });

  it("no configuration", async () => {
    const path = await hub(model);
    await rm(join(path, "config.json"));
    await expect(loadCausalLM(backend(), path)).rejects.toThrow(/config\.json/);
    await writeFile(join(path, "config.json"), "[]");
    await expect(loadCausalLM(backend(), path)).rejects.toThrow(FileError);
  });
});

it("a model that does not fit into memory leaves no memory allocated", async () => {
  for (const [field, family] of [
    ["vocab_size", "llama"],
    ["intermediate_size", "llama"],
    ["moe_intermediate_size", "qwen3_moe"],
  ] as const) {
    const { config, tensors } = tinyModel({ ...TINY, family });
    const path = await hub({ config: { ...config, [field]: 2 ** 31 }, tensors });
    const { live } = backend().memoryUse();
    await expect(loadCausalLM(backend(), path)).rejects.toThrow(OutOfMemoryError);
    expect(backend().memoryUse().live).toBe(live);
  }
});

it("a configuration with more experts than any model is refused before they are created", async () => {
  const { config, tensors } = tinyModel({ ...TINY, family: "qwen3_moe" });
  const path = await hub({ config: { ...config, num_experts: 2 ** 40 }, tensors });
  await expect(loadCausalLM(backend(), path)).rejects.toThrow(/experts; 65536 are the most/);
});
