import { describe, expect, it } from "vitest";
import { ArgumentError, FileError } from "../../../../src/errors.js";
import type { ChatMessage } from "../../../../src/models/tokenizer/chat.js";
import { type Metadata, metadataOf, tokenizerOf } from "./drawn.js";

const openTokenizer = (template: string | undefined) => {
  const metadata: Metadata = metadataOf([], "gpt-2");
  return tokenizerOf(
    template === undefined ? metadata : { ...metadata, "tokenizer.chat_template": template },
  );
};
const MESSAGES: readonly ChatMessage[] = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "Hi" },
];
const TEMPLATE =
  "{% for m in messages %}<{{ m['role'] }}>{{ m.content | trim }}{% endfor %}" +
  "{% if add_generation_prompt %}<assistant>{% endif %}{% if tools %}{{ tools | length }}{% endif %}";

describe("applyChatTemplate", () => {
  it("writes the messages, the introduction of an answer, and other variables", async () => {
    const tokenizer = await openTokenizer(TEMPLATE);
    const text = "<system>Be brief.<user>Hi";
    expect(tokenizer.applyChatTemplate(MESSAGES)).toBe(`${text}<assistant>`);
    expect(tokenizer.applyChatTemplate(MESSAGES, { addGenerationPrompt: false })).toBe(text);
    expect(tokenizer.applyChatTemplate(MESSAGES, { variables: { tools: [1, 2] } })).toBe(
      `${text}<assistant>2`,
    );
  });

  it("throws with the message that the template passes to raise_exception", async () => {
    const tokenizer = await openTokenizer("{{ raise_exception('roles must alternate') }}");
    expect(() => tokenizer.applyChatTemplate(MESSAGES)).toThrow(ArgumentError);
    expect(() => tokenizer.applyChatTemplate(MESSAGES)).toThrow(/refuses it: .*roles must alternate/);
  });

  it("refuses a model without a template, a template that cannot be parsed, and an unknown name", async () => {
    const plainTokenizer = await openTokenizer(undefined);
    expect(() => plainTokenizer.applyChatTemplate(MESSAGES)).toThrow(
      /drawn.gguf: the model has no chat template/,
    );
    const damagedTokenizer = await openTokenizer("{% for %}");
    expect(() => damagedTokenizer.applyChatTemplate(MESSAGES)).toThrow(FileError);
    const tokenizer = await openTokenizer(TEMPLATE);
    expect(() => tokenizer.applyChatTemplate(MESSAGES, { template: "tool_use" })).toThrow(
      /there are default/,
    );
  });

  it("refuses messages without a role", async () => {
    const tokenizer = await openTokenizer(TEMPLATE);
    const invalidMessages: readonly unknown[] = [[{ content: "Hi" }], ["Hi"], [null], "Hi", { role: "user" }];
    for (const messages of invalidMessages)
      expect(() => tokenizer.applyChatTemplate(messages as readonly ChatMessage[])).toThrow(ArgumentError);
  });
});
