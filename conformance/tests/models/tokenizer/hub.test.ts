import { describe, expect, it } from "vitest";
import { FileError } from "../../../../src/errors.js";
import { type HubFiles, hubDefinition } from "../../../../src/models/tokenizer/hub.js";

const tokenizer = {
  model: { type: "BPE", vocab: { "<s>": 1, "</s>": 2, a: 3, constructor: 4 }, merges: [] },
  added_tokens: [{ id: 9, content: "<|end|>", special: true }],
};
const definition = (files: Omit<HubFiles, "tokenizer">) => hubDefinition("x", { tokenizer, ...files });

describe("hubDefinition", () => {
  it("ends at the tokens of generation_config.json, else config.json, and of tokenizer_config.json", () => {
    const tokenizerConfig = { eos_token: "<|end|>" };
    expect(definition({}).eosTokenIds).toEqual([]);
    expect(definition({ config: { eos_token_id: 3 } }).eosTokenIds).toEqual([3]);
    expect(
      definition({ config: { eos_token_id: 3 }, generationConfig: { eos_token_id: [2, 1] } }).eosTokenIds,
    ).toEqual([1, 2]);
    expect(definition({ config: { eos_token_id: 3 }, tokenizerConfig }).eosTokenIds).toEqual([3, 9]);
    expect(definition({ tokenizerConfig: { eos_token: { content: "</s>" } } }).eosTokenIds).toEqual([2]);
    expect(definition({ tokenizerConfig: { eos_token: "toString" } }).eosTokenIds).toEqual([]);
  });

  it("begins with the token of tokenizer_config.json, else of generation_config.json, else of config.json", () => {
    const config = { bos_token_id: 3 };
    const generationConfig = { bos_token_id: 2 };
    expect(definition({ config }).bosTokenId).toBe(3);
    expect(definition({ config, generationConfig }).bosTokenId).toBe(2);
    expect(definition({ config, generationConfig, tokenizerConfig: { bos_token: "<s>" } }).bosTokenId).toBe(
      1,
    );
  });

  it("has the chat templates by name, and first the template of chat_template.jinja", () => {
    const templates = { tokenizerConfig: { chat_template: "old" }, chatTemplate: "new" };
    expect([...definition({ tokenizerConfig: { chat_template: "old" } }).chatTemplates]).toEqual([
      ["default", "old"],
    ]);
    expect([...definition(templates).chatTemplates]).toEqual([["default", "new"]]);
    const named = { chat_template: [{ name: "tool_use", template: "t" }] };
    expect([...definition({ tokenizerConfig: named }).chatTemplates]).toEqual([["tool_use", "t"]]);
    expect(() => definition({ tokenizerConfig: { chat_template: [{ name: "x" }] } })).toThrow(
      /a name and a template/,
    );
  });

  it("refuses a tokenizer without a vocabulary", () => {
    for (const model of [undefined, {}, { vocab: [["a", 0]] }])
      expect(() => hubDefinition("x", { tokenizer: { model } })).toThrow(FileError);
  });
});
