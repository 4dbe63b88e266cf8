/** The strict JSON reader at its limits: every character, every depth, every size, and repeated members. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FileError } from "../../../src/errors.js";
import { parseHeader } from "../../../src/io/header/header.js";
import { headerPieces } from "../../../src/io/header/header-text.js";
import { JsonError, jsonMembers, MAX_DEPTH, parseJson, readDigits } from "../../../src/io/json/json-read.js";
import { draws } from "../harness/draws.js";

const PATH = "drawn.safetensors";
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const membersOf = (text: string, minBytes?: number): readonly (readonly [string, unknown])[] => [
  ...jsonMembers(headerPieces(PATH, bytesOf(text), minBytes), Number),
];

/** The value that a reader returns for a text, or the message of its refusal. */
function outcome(parse: () => unknown): { readonly value: unknown } | { readonly refused: string } {
  try {
    return { value: parse() };
  } catch (error) {
    if (error instanceof JsonError || error instanceof SyntaxError) return { refused: error.message };
    throw error;
  }
}

describe("the JSON reader", () => {
  it("is JSON.parse for each ASCII character at each position of a text", () => {
    const texts = [
      '{"a b":[-1.5e+3,true,null],"c":"d\\n"}',
      ' [ "x" , {"":0} ] ',
      '"long enough for a copy"',
    ];
    for (const text of texts)
      for (let position = 0; position <= text.length; position++)
        for (let code = 0; code < 128; code++)
          for (const numRemoved of [0, 1]) {
            const editedText =
              text.slice(0, position) + String.fromCharCode(code) + text.slice(position + numRemoved);
            const [actual, expected] = [
              outcome(() => parseJson(editedText)),
              outcome(() => JSON.parse(editedText)),
            ];
            if ("refused" in actual && actual.refused.includes("twice")) continue;
            if ("refused" in expected) expect(actual, editedText).toHaveProperty("refused");
            else expect(actual, editedText).toEqual(expected);
          }
  });

  it("takes values of MAX_DEPTH levels and refuses one more, of arrays and objects in any order", () => {
    const levels = fc.array(fc.boolean(), { minLength: MAX_DEPTH + 1, maxLength: MAX_DEPTH + 1 });
    fc.assert(
      fc.property(levels, (areArrays) => {
        const nestedText = (count: number): string => {
          const ownBrackets = areArrays.slice(0, count);
          const open = ownBrackets.map((isArray) => (isArray ? "[" : '{"k":')).join("");
          return `${open}0${ownBrackets
            .map((isArray) => (isArray ? "]" : "}"))
            .reverse()
            .join("")}`;
        };
        expect(JSON.stringify(parseJson(nestedText(MAX_DEPTH)))).toBe(nestedText(MAX_DEPTH));
        expect(() => parseJson(nestedText(MAX_DEPTH + 1))).toThrow(`nests more than ${MAX_DEPTH} deep`);
        // the root of a header counts as one level
        expect(membersOf(`{"a":${nestedText(MAX_DEPTH - 1)}}`)).toHaveLength(1);
        expect(() => membersOf(`{"a":${nestedText(MAX_DEPTH)}}`)).toThrow(
          `nests more than ${MAX_DEPTH} deep`,
        );
      }),
      { numRuns: draws(20) },
    );
  });

  it("names the place of a wrong character, in however many pieces the text comes", () => {
    const member = fc.tuple(fc.string({ unit: "grapheme", maxLength: 8 }), fc.nat(9_999));
    fc.assert(
      fc.property(
        fc.array(member, { minLength: 1, maxLength: 8 }),
        fc.nat(),
        fc.nat(30),
        (memberTexts, position, minBytes) => {
          const texts = memberTexts.map(([key, value]) => `${JSON.stringify(key)}:${value}`);
          const prefix = texts.slice(0, 1 + (position % texts.length)).join(",");
          const text = `{${prefix}?,${texts.join(",")}}`;
          expect(outcome(() => membersOf(text, minBytes))).toEqual({
            refused: `is not valid JSON: it has "?" at ${prefix.length + 1}`,
          });
        },
      ),
      // the error is in the third piece
      { examples: [[Array(3).fill(["a", 1]), 2, 0]] },
    );
  });

  it("reads each safe integer in digits as that number, and other numbers as no safe integer", () => {
    const parse = (text: string): unknown => membersOf(`{"a":${text}}`)[0]?.[1];
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.constantFrom("", ".0", "e0", "E+0"), (size, end) => {
        expect(parse(`${size}${end}`)).toBe(size);
        if (end === "") expect(readDigits(String(size))).toBe(size);
        else expect(Number.isSafeInteger(readDigits(`${size}${end}`))).toBe(false);
      }),
      { examples: [[Number.MAX_SAFE_INTEGER, ""]] },
    );
  });
});

describe("a header", () => {
  it("is refused if it repeats a member, be it a tensor or the metadata, and names it", () => {
    const names = fc.uniqueArray(fc.string({ maxLength: 4 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(names, fc.nat(), fc.nat(), (tensors, memberIndex, insertionIndex) => {
        const emptyEntry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}';
        const members = [
          ["__metadata__", '{"a":"b"}'] as const,
          ...tensors.map((name) => [name, emptyEntry] as const),
        ];
        const textOf = (memberList: typeof members): Uint8Array =>
          bytesOf(`{${memberList.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`);
        expect(parseHeader(PATH, textOf(members), 0).tensors.size).toBe(tensors.length);
        const repeatedMember = members[memberIndex % members.length] as (typeof members)[number];
        const withRepetition = members.toSpliced(insertionIndex % (members.length + 1), 0, repeatedMember);
        const message = `has the key ${JSON.stringify(repeatedMember[0])} twice`;
        expect(() => parseHeader(PATH, textOf(withRepetition), 0)).toThrow(FileError);
        expect(() => parseHeader(PATH, textOf(withRepetition), 0)).toThrow(message);
      }),
    );
  });

  it("places tensors at every offset that a number can name", () => {
    const size = fc.oneof(
      fc.maxSafeNat(),
      fc.integer({ min: 0, max: 53 }).map((bits) => 2 ** bits - 1),
    );
    fc.assert(
      fc.property(size, (bytes) => {
        const text = `{"a":{"dtype":"U8","shape":[${bytes}],"data_offsets":[0,${bytes}]},"b":{"dtype":"F32","shape":[0,${bytes}],"data_offsets":[${bytes},${bytes}]}}`;
        const { tensors } = parseHeader(PATH, bytesOf(text), bytes);
        expect(tensors.get("a")).toMatchObject({ shape: [bytes], begin: 0, end: bytes });
        expect(tensors.get("b")).toMatchObject({ shape: [0, bytes], begin: bytes, end: bytes });
      }),
    );
  });
});
