/** GGUF files of Gemma 3, gpt-oss and DeepSeek-V3. An independent writer converts them from tiny models as llama.cpp does. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { convertCheckpoint } from "../../../../src/checkpoints/index.js";
import { FileError } from "../../../../src/errors.js";
import { type LoadCausalLMOptions, loadCausalLM } from "../../../../src/models/index.js";
import { tensor } from "../../../../src/ops/create.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { type Changes, writeFamily } from "../gguf-families.js";
import { type FamilyChoices, type FamilyName, familyChoices, tinyFamily } from "../tiny-families.js";
import { type TinyModel, writeHub } from "../tiny-model.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const TOKENS = [3, 14, 15, 9, 2, 6, 5, 35, 8, 9, 7, 9];
const FAMILIES = ["gemma3_text", "gpt_oss", "deepseek_v3"] as const;

let folder: string;
let count = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-gguf-"));
});
afterAll(() => rm(folder, { recursive: true }));
const newFolder = (): string => join(folder, `${count++}`);

/** The bits of the logits of `TOKENS`. */
async function logitsOf(path: string, options: LoadCausalLMOptions = {}): Promise<string> {
  using model = await loadCausalLM(backend(), path, options);
  using _scope = new Scope();
  const ids = tensor(backend(), Int32Array.from(TOKENS), [1, TOKENS.length], "i32");
  const logits = noGrad(() => model.forward(ids).tensor.dataSync()) as Float32Array;
  expect(logits.every(Number.isFinite)).toBe(true);
  return Buffer.from(logits.slice().buffer).toString("hex");
}

async function hub(model: TinyModel): Promise<string> {
  const path = newFolder();
  await writeHub(path, model);
  return path;
}

async function file(
  model: TinyModel,
  ...[type, options]: readonly [Parameters<typeof writeFamily>[2]?, Parameters<typeof writeFamily>[3]?]
): Promise<string> {
  const path = `${newFolder()}.gguf`;
  await writeFamily(path, model, type ?? "BF16", options);
  return path;
}

describe.each(FAMILIES)("the GGUF file of %s", (family) => {
  it("has the bits of the folder with the same values", async () => {
    const types = fc.constantFrom("F32", "F16", "BF16");
    await fc.assert(
      fc.asyncProperty(familyChoices(family), types, fc.boolean(), async (choices, type, isOld) => {
        const model = tinyFamily(choices);
        const [path, folder] = [await file(model, type, { isOld }), await hub(model)];
        for (const dtype of ["bf16", "f32"] as const)
          expect(await logitsOf(path, { dtype })).toBe(await logitsOf(folder, { dtype }));
      }),
      { numRuns: draws(40, 5) },
    );
  });

  it("has the configuration and the logits of the folder that a conversion writes", async () => {
    await fc.assert(
      fc.asyncProperty(familyChoices(family), fc.constantFrom("bf16", "f32"), async (choices, to) => {
        const path = await file(tinyFamily(choices));
        const wide = newFolder();
        await convertCheckpoint(path, wide, { to });
        const { model_type: type } = JSON.parse(await readFile(join(wide, "config.json"), "utf8"));
        expect(type).toBe(family);
        for (const dtype of ["bf16", "f32"] as const)
          expect(await logitsOf(wide, { dtype })).toBe(await logitsOf(path, { dtype }));
      }),
      { numRuns: draws(30, 4) },
    );
  });
});

const USUAL: Omit<FamilyChoices, "family"> = {
  ...{ layers: 6, heads: [4, 2], isScaled: true, isUsual: true, softcap: true, groups: true, isTied: false },
  ...{ mscale: 1, seed: 5 },
};

describe("a key of the metadata", () => {
  const CHANGES: readonly (readonly [FamilyName, Changes])[] = [
    ["gemma3_text", { "attention.sliding_window": 5 }],
    ["gemma3_text", { "attention.sliding_window": undefined }],
    ["gemma3_text", { final_logit_softcapping: 1 }],
    ["gemma3_text", { "rope.scaling.factor": 2 }],
    ["gpt_oss", { "attention.sliding_window": 5 }],
    ["gpt_oss", { "rope.scaling.yarn_beta_fast": 2 }],
    ["gpt_oss", { expert_used_count: 3 }],
    ["deepseek_v3", { "rope.scaling.yarn_log_multiplier": 0.05 }],
    ["deepseek_v3", { expert_weights_scale: 1 }],
    ["deepseek_v3", { expert_group_count: undefined, expert_group_used_count: undefined }],
  ];
  it.each(CHANGES)("of %s changes what the model computes: %j", async (family, changes) => {
    const model = tinyFamily({ ...USUAL, family });
    const expected = await logitsOf(await file(model), { dtype: "f32" });
    expect(await logitsOf(await file(model, "BF16", { changes }), { dtype: "f32" })).not.toBe(expected);
  });

  it("of deepseek_v3 for the scale or the groups of experts may be missing; there is no scale and one group then", async () => {
    const model = tinyFamily({ ...USUAL, family: "deepseek_v3" });
    for (const [neutral, missing] of [
      [{ expert_weights_scale: 1 }, { expert_weights_scale: undefined }],
      [
        { expert_group_count: 1, expert_group_used_count: 1 },
        { expert_group_count: undefined, expert_group_used_count: undefined },
      ],
      [
        { expert_group_count: 2, expert_group_used_count: 2 },
        { expert_group_count: 2, expert_group_used_count: undefined },
      ],
    ] as readonly (readonly [Changes, Changes])[]) {
      const [expected, actual] = await Promise.all(
        [neutral, missing].map(async (changes) => logitsOf(await file(model, "BF16", { changes }))),
      );
      expect(actual).toBe(expected);
    }
  });

  const WRONG: readonly (readonly [FamilyName, Changes, RegExp])[] = [
    [
      "gemma3_text",
      { "attention.key_length": undefined },
      /no gemma3\.attention\.key_length; the model needs/,
    ],
    ["gemma3_text", { "attention.head_count": 3 }, /gemma3\.attention\.head_count_kv is 2; .* a divisor/],
    [
      "gpt_oss",
      { "attention.sliding_window": undefined },
      /no gpt-oss\.attention\.sliding_window; the model/,
    ],
    ["gpt_oss", { expert_count: undefined }, /gpt-oss\.expert_count is missing; it must be a whole number/],
    ["gpt_oss", { expert_used_count: 9 }, /gpt-oss\.expert_used_count is 9; it must be at most/],
    ["gpt_oss", { "rope.scaling.factor": undefined }, /gpt-oss\.rope\.scaling\.factor is missing/],
    ["deepseek_v3", { block_count: undefined }, /deepseek2\.block_count is missing/],
    ["deepseek_v3", { leading_dense_block_count: undefined }, /no deepseek2\.leading_dense_block_count/],
    [
      "deepseek_v3",
      { expert_gating_func: 1 },
      /deepseek2\.expert_gating_func is "softmax"; it must be "sigmoid"/,
    ],
    ["deepseek_v3", { expert_gating_func: undefined }, /deepseek2\.expert_gating_func is "softmax"/],
    ["deepseek_v3", { expert_weights_norm: undefined }, /deepseek2\.expert_weights_norm is false/],
    [
      "deepseek_v3",
      { "rope.dimension_count": 3 },
      /deepseek2\.rope\.dimension_count is 3; .* an even number/,
    ],
    ["deepseek_v3", { "attention.kv_lora_rank": undefined }, /deepseek2\.attention\.kv_lora_rank is missing/],
  ];
  it.each(WRONG)("of %s is named if it is missing or wrong: %j", async (family, changes, message) => {
    const path = await file(tinyFamily({ ...USUAL, family }), "BF16", { changes });
    const error = await loadCausalLM(backend(), path).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(FileError);
    expect(String(error)).toMatch(message);
  });
});
