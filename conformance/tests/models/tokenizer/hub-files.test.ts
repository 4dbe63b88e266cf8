/** A tokenizer that is loaded from files written from GGUF metadata gives the same tokens as the metadata. */
import fc from "fast-check";
import { expect, it } from "vitest";
import type { JsonObject } from "../../../../src/io/json/json-object.js";
import { ggufDefinition } from "../../../../src/models/tokenizer/gguf.js";
import { hubDefinition } from "../../../../src/models/tokenizer/hub.js";
import { hubFiles } from "../../../../src/models/tokenizer/hub-files.js";
import { Tokenizer } from "../../../../src/models/tokenizer/tokenizer.js";
import { draws } from "../../harness/draws.js";
import { type Metadata, TEXTS, TOKENIZERS } from "./drawn.js";

async function openBoth(metadata: Metadata): Promise<readonly [Tokenizer, Tokenizer]> {
  const definition = await ggufDefinition("drawn.gguf", async (key) => metadata[key]);
  const files = JSON.parse(JSON.stringify(hubFiles(definition))) as Record<string, JsonObject>;
  const hub = hubDefinition("folder", {
    tokenizer: files["tokenizer.json"] as JsonObject,
    tokenizerConfig: files["tokenizer_config.json"],
    generationConfig: files["generation_config.json"],
  });
  return [Tokenizer.of(definition), Tokenizer.of(hub)];
}

const extras = fc.record({
  template: fc.constantFrom(
    undefined,
    "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}",
  ),
  addsBos: fc.constantFrom(undefined, true, false),
  endOfTurn: fc.constantFrom(undefined, 97),
  padding: fc.nat(3),
});

it("written files give the tokens of the metadata, for drawn tokenizers and texts", async () => {
  await fc.assert(
    fc.asyncProperty(TOKENIZERS, extras, fc.array(TEXTS, { maxLength: 8 }), async (choices, extra, texts) => {
      const { template, addsBos, endOfTurn, padding } = extra;
      const list = (name: string) => choices[`tokenizer.ggml.${name}`] as readonly (string | number)[];
      const pads = Array.from({ length: padding }, (_, i) => `[PAD${i}]`);
      const metadata: Metadata = {
        ...choices,
        "tokenizer.ggml.tokens": [...list("tokens"), ...pads],
        "tokenizer.ggml.token_type": [...list("token_type"), ...pads.map(() => 5)],
        ...(template === undefined ? {} : { "tokenizer.chat_template": template }),
        ...(addsBos === undefined ? {} : { "tokenizer.ggml.add_bos_token": addsBos }),
        ...(endOfTurn === undefined ? {} : { "tokenizer.ggml.eot_token_id": endOfTurn }),
      };
      const [gguf, hub] = await openBoth(metadata);
      expect([hub.bosTokenId, hub.eosTokenIds]).toEqual([gguf.bosTokenId, gguf.eosTokenIds]);
      expect(hub.chatTemplates).toEqual(gguf.chatTemplates);
      const resultsOf = (tokenizer: Tokenizer) =>
        template && tokenizer.applyChatTemplate([{ role: "user", content: "ab" }]);
      expect(resultsOf(hub)).toBe(resultsOf(gguf));
      for (const text of texts)
        for (const addSpecialTokens of [true, false]) {
          const ids = gguf.encode(text, { addSpecialTokens });
          expect([...hub.encode(text, { addSpecialTokens })]).toEqual([...ids]);
          expect(hub.decode(ids)).toBe(gguf.decode(ids));
        }
      const last = list("tokens").length + padding - 1;
      expect(hub.decode([97, last])).toBe(gguf.decode([97, last]));
    }),
    { numRuns: draws(200, 20) },
  );
});
