import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../../../src/errors.js";
import { BYTE_CHARACTERS, DecodeStream, decodingRule } from "../../../../src/models/tokenizer/decoder.js";
import { ALPHABET } from "./drawn.js";

const { bytes } = decodingRule({ type: "ByteLevel" });
const sequence = (...decoders: readonly object[]) => decodingRule({ type: "Sequence", decoders });
const REPLACE = { type: "Replace", pattern: { String: "▁" }, content: " " };
const STRIP = { type: "Strip", content: " ", start: 2, stop: 0 };

describe("decodingRule", () => {
  it("reads sequences of replacements, bytes and a strip", () => {
    const rule = sequence(REPLACE, { type: "ByteFallback" }, { type: "Fuse" }, STRIP);
    expect([...rule.bytes("▁a▁")]).toEqual([0x20, 0x61, 0x20]);
    expect([...rule.bytes("<0xE4>")]).toEqual([0xe4]);
    expect(rule.strippedSpaces).toBe(2);
    expect(new TextDecoder().decode(sequence(REPLACE).bytes("<0xE4>"))).toBe("<0xE4>");
  });

  it("reads Metaspace, which takes the space that it put before a text", () => {
    expect([...decodingRule({ type: "Metaspace" }).bytes("▁a")]).toEqual([0x20, 0x61]);
    expect([...decodingRule({ type: "Metaspace", replacement: "_" }).bytes("_")]).toEqual([0x20]);
    expect(decodingRule({ type: "Metaspace" }).strippedSpaces).toBe(1);
    expect(decodingRule({ type: "Metaspace", prepend_scheme: "never" }).strippedSpaces).toBe(0);
  });

  it.each([
    [{ type: "CTC" }, "the decoder CTC"],
    [null, "the decoder undefined"],
    [{ type: "Sequence", decoders: [{ type: "WordPiece" }] }, "the decoder WordPiece in a sequence"],
    [{ type: "Sequence", decoders: [{ ...STRIP, stop: 1 }] }, "the decoder Strip in a sequence"],
    [{ type: "Sequence", decoders: [{ ...STRIP, content: "x" }] }, "the decoder Strip in a sequence"],
    [
      { type: "Sequence", decoders: [{ ...REPLACE, pattern: { Regex: "x" } }] },
      "the decoder Replace in a sequence",
    ],
  ])("refuses %j", (decoder, message) => {
    expect(() => decodingRule(decoder)).toThrow(UnsupportedError);
    expect(() => decodingRule(decoder)).toThrow(`${message} is not supported`);
  });
});

it("spaces are taken from the beginning of each text only, also if they come one by one", () => {
  const stream = DecodeStream.of({ bytesOf: (id) => Uint8Array.of(id), strippedSpaces: 2 });
  const [space, a] = [0x20, 0x61];
  for (const [ids, text] of [
    [[space, space, space, a, space, space, a], " a  a"],
    [[space, a, space, space], "a  "],
    [[a, space], "a "],
    [[space], ""],
  ] as const)
    expect(ids.map((id) => stream.step(id)).join("") + stream.end()).toBe(text);
});

it("each byte has the character that GPT-2 gives it, and the character the byte", () => {
  expect(BYTE_CHARACTERS).toEqual(ALPHABET);
  expect(BYTE_CHARACTERS[0x20]).toBe("Ġ");
  expect(BYTE_CHARACTERS[0x0a]).toBe("Ċ");
  for (const [byte, character] of ALPHABET.entries()) expect([...bytes(character)]).toEqual([byte]);
});

it("a token with other characters stands for its own bytes", () => {
  expect(new TextDecoder().decode(bytes("<｜begin▁of▁sentence｜>"))).toBe("<｜begin▁of▁sentence｜>");
});

it("replacements that could exhaust memory are refused", () => {
  const doubling = { type: "Replace", pattern: { String: "a" }, content: "aa" };
  expect(() => decodingRule({ type: "Sequence", decoders: new Array(60).fill(doubling) })).toThrow(
    /the decoder whose replacements can lengthen a text/,
  );
});
