/** `loadTokenizer` reads folders and files of models. SmolLM2's tokenizer gives the tokens of the Rust library. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { FileError } from "../../../../src/errors.js";
import { loadTokenizer } from "../../../../src/models/tokenizer/load.js";
import { inFolder } from "../../checkpoints/files/checkpoints.js";
import { missingSmolLM2, SMOLLM2, SMOLLM2_FILE } from "../../harness/models.js";
import { RECORDED } from "./recorded.js";

const [small] = RECORDED.small;
const json = JSON.stringify(small?.tokenizer);

describe("loadTokenizer", () => {
  it("reads a folder, and the folder of a file of weights", async () => {
    await inFolder(async (folder) => {
      writeFileSync(join(folder, "tokenizer.json"), json);
      writeFileSync(
        join(folder, "tokenizer_config.json"),
        '{"eos_token":"<|endoftext|>","bos_token":"<|begin|>"}',
      );
      writeFileSync(join(folder, "generation_config.json"), '{"eos_token_id":[1,0]}');
      writeFileSync(join(folder, "chat_template.jinja"), "{{ messages[0].content }}");
      writeFileSync(join(folder, "model.safetensors"), "");
      for (const path of [folder, join(folder, "model.safetensors")]) {
        const tokenizer = await loadTokenizer(path);
        expect([...tokenizer.encode(RECORDED.texts[3] ?? "")]).toEqual(small?.encodings[3]?.ids);
        expect([tokenizer.bosTokenId, tokenizer.eosTokenIds]).toEqual([0, [0, 1]]);
        expect(tokenizer.applyChatTemplate([{ role: "user", content: "Hi" }])).toBe("Hi");
      }
    });
  });

  it("names the missing or damaged file in its error", async () => {
    await inFolder(async (folder) => {
      await expect(loadTokenizer(folder)).rejects.toThrow(/has neither tokenizer.json nor a .gguf file/);
      await expect(loadTokenizer(join(folder, "absent"))).rejects.toThrow(FileError);
      writeFileSync(join(folder, "tokenizer.json"), "{");
      await expect(loadTokenizer(folder)).rejects.toThrow(/tokenizer\.json/);
      writeFileSync(join(folder, "tokenizer.json"), json);
      writeFileSync(join(folder, "chat_template.jinja"), " ".repeat(2 ** 20 + 1));
      await expect(loadTokenizer(folder)).rejects.toThrow(/chat_template.jinja: has 1048577 bytes/);
    });
  });
});

describe("SmolLM2-135M-Instruct", () => {
  it("gives the tokens and texts of the Rust library, from the folder and from the file", async ({
    skip,
  }) => {
    if (missingSmolLM2) return skip(missingSmolLM2);
    expect((await loadTokenizer(SMOLLM2_FILE)).vocabularySize).toBe(49152);
    const tokenizer = await loadTokenizer(SMOLLM2);
    for (const [i, text] of RECORDED.texts.entries()) {
      const { ids, decoded: decodedText } = RECORDED.smollm2.encodings[i] ?? { ids: [] };
      expect([...tokenizer.encode(text)]).toEqual(ids);
      expect(tokenizer.decode(ids)).toBe(decodedText ?? text);
    }
    expect([tokenizer.bosTokenId, tokenizer.eosTokenIds]).toEqual([1, [2]]);
    expect(() => tokenizer.encode("a\u0004")).toThrow(/has no token for U\+0004/);
  });

  it("writes a conversation as its template does", async ({ skip }) => {
    if (missingSmolLM2) return skip(missingSmolLM2);
    const tokenizer = await loadTokenizer(SMOLLM2);
    const messages = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hi" },
    ];
    const text = tokenizer.applyChatTemplate(messages);
    expect(text).toBe(
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    );
    expect([...tokenizer.encode(text)].filter((id) => id < 3)).toEqual([1, 2, 1, 2, 1]);
  });
});
