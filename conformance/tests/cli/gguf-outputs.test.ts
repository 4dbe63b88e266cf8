/**
 * `lockstep convert` of a GGUF file also writes the other files that `generate` needs, or names the ones that it cannot write.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type Piece, u8, u32, u64 } from "../checkpoints/gguf/files.js";
import { useWorkspace } from "../harness/cli.js";
import { writeFamily } from "../models/gguf-families.js";
import { tinyFamily } from "../models/tiny-families.js";
import { TINY, tinyModel, writeGguf } from "../models/tiny-model.js";

const w = useWorkspace();

const entry = (key: string, text: string): readonly Piece[] => [`tokenizer.ggml.${key}`, u32(8), text];
const number = (key: string, value: number): readonly Piece[] => [
  `tokenizer.ggml.${key}`,
  u32(4),
  u32(value),
];
const listPiece = (key: string, texts: readonly string[]): readonly Piece[] => [
  ...[`tokenizer.ggml.${key}`, u32(9), u32(8), u64(texts.length)],
  ...texts,
];
/** A tokenizer with a token for each of 40 characters; the last one ends texts. */
const TOKENS = [..."abcdefghijklmnopqrstuvwxyz0123456789.,!?"];
const TOKENIZER = [
  ...[entry("model", "gpt2"), entry("pre", "gpt-2"), listPiece("tokens", TOKENS), listPiece("merges", [])],
  ...[number("bos_token_id", 1), number("eos_token_id", 39)],
];

/** The same characters as pieces of SentencePiece. */
const PIECES = [
  ...[entry("model", "llama"), listPiece("tokens", TOKENS)],
  ["tokenizer.ggml.add_space_prefix", u32(7), u8(0)] as readonly Piece[],
  [...["tokenizer.ggml.scores", u32(9), u32(6), u64(40)], new Uint8Array(160)] as readonly Piece[],
  ...[number("bos_token_id", 1), number("eos_token_id", 39)],
];

async function convert(target: string): Promise<{ readonly missing?: Readonly<Record<string, string>> }> {
  return JSON.parse(await w.succeed("convert", "@model.gguf", "-o", "@out", "--to", target, "--json"));
}

async function generate(path: string): Promise<object> {
  const args = ["--prompt", "abc", "--max-tokens", "5", "--json"];
  return { ...JSON.parse(await w.succeed("generate", path, ...args)), tokensPerSecond: 0 };
}

describe("the folder of a converted GGUF file", () => {
  it.each(["llama", "qwen3_moe"] as const)("generates the text of the file, %s", async (family) => {
    await writeGguf(w.path("model.gguf"), tinyModel({ ...TINY, family }), "BF16", TOKENIZER);
    expect(await convert("bf16")).toMatchObject({ missing: {} });
    expect(await generate("@out")).toEqual(await generate("@model.gguf"));
  });

  it.each(["gemma3_text", "gpt_oss", "deepseek_v3"] as const)(
    "generates the text of the file, %s",
    async (family) => {
      const choices = { layers: 2, heads: [4, 2], isScaled: true, isUsual: true, softcap: true } as const;
      const model = tinyFamily({ ...choices, family, groups: true, isTied: false, mscale: 1, seed: 3 });
      const extra = family === "gemma3_text" ? PIECES : TOKENIZER;
      await writeFamily(w.path("model.gguf"), model, "BF16", { extra });
      expect(await convert("bf16")).toMatchObject({ missing: {} });
      expect(await generate("@out")).toEqual(await generate("@model.gguf"));
    },
  );

  it("has the quantization in its configuration", async () => {
    await writeGguf(w.path("model.gguf"), tinyModel(TINY), "BF16", TOKENIZER);
    await convert("ct-mxfp4");
    const config = JSON.parse(readFileSync(w.path("out/config.json"), "utf8"));
    expect(config).toMatchObject({
      model_type: "llama",
      quantization_config: { quant_method: "compressed-tensors" },
    });
    const report = { ...(await generate("@out")) };
    const args = ["--prompt", "abc", "--max-tokens", "5", "--weights", "ct-mxfp4", "--json"];
    const formReport = JSON.parse(await w.succeed("generate", "@model.gguf", ...args));
    expect(report).toEqual({ ...formReport, tokensPerSecond: 0 });
  });

  it("omits tokenizer.json and config.json if the metadata lack their content, with the reason", async () => {
    await writeGguf(w.path("model.gguf"), tinyModel(TINY), "BF16");
    expect((await convert("bf16")).missing).toEqual({
      "tokenizer.json": expect.stringMatching(/the metadata have no tokenizer.ggml.model/),
    });
    expect(existsSync(w.path("out/config.json"))).toBe(true);
    const bytes = readFileSync(w.path("model.gguf"), "latin1").replace("llama", "lemma");
    writeFileSync(w.path("other.gguf"), bytes, "latin1");
    const output = await w.succeed("convert", "@other.gguf", "-o", "@other", "--to", "f32");
    expect(output).toContain(
      "config.json: is not written: the configuration of the architecture lemma is not known\n",
    );
    expect(existsSync(w.path("other/config.json"))).toBe(false);
  });

  it("says nothing of files where the output is a GGUF file", async () => {
    await writeGguf(w.path("model.gguf"), tinyModel(TINY), "BF16", TOKENIZER);
    expect(await convert("gguf-mxfp4")).not.toHaveProperty("missing");
  });
});
