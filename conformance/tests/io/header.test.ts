/** The reader of headers accepts the same strings as `JSON.parse`, and uses bounded memory for each tensor. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FileError } from "../../../src/errors.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../../../src/io/dtypes.js";
import { parseHeader, type TensorEntry } from "../../../src/io/header/header.js";
import { headerPieces } from "../../../src/io/header/header-text.js";
import { encodeHeader, planEntries } from "../../../src/io/header/header-write.js";
import { NameIndex } from "../../../src/io/header/name-index.js";
import { PackedWriter } from "../../../src/io/header/packed.js";
import { JsonError, jsonMembers } from "../../../src/io/json/json-read.js";
import { draws } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";

const PATH = "drawn.safetensors";
const DTYPES = Object.keys(FILE_DTYPES) as readonly FileDType[];
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

/** The members that the reader finds in a text that is divided into pieces, or the error with which it refuses the text. */
function members(text: string, minBytes?: number): readonly (readonly [string, unknown])[] | Error {
  try {
    return [...jsonMembers(headerPieces(PATH, bytesOf(text), minBytes), Number)];
  } catch (error) {
    if (error instanceof JsonError || error instanceof FileError) return error;
    throw error;
  }
}

/** The result of `JSON.parse` for the UTF-8 bytes of a text, in which unpaired surrogates are replaced. */
function parseOrError(text: string): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytesOf(text)));
  } catch {
    return undefined;
  }
}

/** More spaces than one piece has bytes, so that a piece ends at the next comma of the root. */
const WIDE = " ".repeat(70_000);
const space = fc.constantFrom("", "", " ", "\n\t\r ");
/** The minimum number of bytes of a piece: small, so that each comma ends a piece, or the default. */
const leasts = fc.oneof(fc.nat(40), fc.constant(undefined));
/** Any text as a JSON string, with characters written directly or as escapes. */
const jsonString = fc
  .tuple(fc.string({ unit: "binary", maxLength: 16 }), fc.boolean())
  .map(([text, isEscaped]) =>
    isEscaped
      ? `"${[...text].flatMap((character) => character.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)).join("")}"`
      : JSON.stringify(text),
  );
const { value: jsonText } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom("0", "-0", "1e3", "0.5", "-12", "true", "false", "null", "12345678901234567890"),
    jsonString,
    fc.array(tie("value"), { maxLength: 3 }).map((elements) => `[${elements.join(",")}]`),
    fc
      .uniqueArray(fc.tuple(fc.string({ maxLength: 3 }), tie("value")), {
        maxLength: 3,
        selector: ([key]) => key,
      })
      .map((entries) => `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(",")}}`),
  ),
}));
const rootText = fc
  .array(fc.tuple(space, jsonString, space, jsonText, space), { maxLength: 4 })
  .map((entries) => `{${entries.map(([a, key, b, value, c]) => `${a}${key}${b}:${value}${c}`).join(",")}}`);
/** Valid texts with some characters removed or inserted. */
const damagedText = fc
  .tuple(
    rootText,
    fc.array(
      fc.record({
        position: fc.nat(200),
        numRemoved: fc.nat(2),
        insertion: fc.constantFrom(
          "",
          "{",
          "}",
          "[",
          "]",
          '"',
          "\\",
          ",",
          ":",
          "0",
          "\u0001",
          "é",
          "e",
          "-",
          "tru",
        ),
      }),
      { minLength: 1, maxLength: 3 },
    ),
  )
  .map(([text, edits]) =>
    edits.reduce((edited, { position, numRemoved, insertion }) => {
      const editPosition = edited.length === 0 ? 0 : position % edited.length;
      return edited.slice(0, editPosition) + insertion + edited.slice(editPosition + numRemoved);
    }, text),
  );

/**
 * The positions of the commas between members of the root: there, the text before the comma becomes a valid object if it is
 * closed.
 */
function rootCommas(bytes: Uint8Array): readonly number[] {
  const isObject = (text: string): boolean => {
    try {
      return typeof JSON.parse(text) === "object";
    } catch {
      return false;
    }
  };
  const text = Buffer.from(bytes);
  return [...text.keys()].filter((index) => text[index] === 0x2c && isObject(`${text.subarray(0, index)}}`));
}

describe("the reader of headers", () => {
  it.each<[string, fc.Arbitrary<string>]>([
    ["valid", rootText],
    ["damaged", damagedText],
  ])("is JSON.parse on %s text, in whatever pieces", (_, texts) => {
    fc.assert(
      fc.property(texts, leasts, (text, minBytes) => {
        const [actual, expected] = [members(text, minBytes), parseOrError(text)];
        if (expected === undefined || !text.startsWith("{")) {
          expect(actual).toBeInstanceOf(Error);
          return;
        }
        // the reader refuses repeated keys within a value; JSON.parse takes the last one
        if (actual instanceof Error) expect(actual.message).toContain("twice");
        else expect(Object.fromEntries(actual)).toEqual(expected);
      }),
      { numRuns: draws(800) },
    );
  });

  it("splits it after the first commas between members that follow the given numbers of bytes", () => {
    fc.assert(
      fc.property(rootText, fc.nat(40), (text, minBytes) => {
        const bytes = bytesOf(text);
        const pieces = [...headerPieces(PATH, bytes, minBytes)].map((rootPiece) => bytesOf(rootPiece));
        expect(Buffer.concat(pieces).equals(Buffer.from(bytes))).toBe(true);
        const commas = rootCommas(bytes);
        const expected: number[] = [];
        let from = 0;
        for (const comma of commas) {
          if (comma - from < minBytes) continue;
          expected.push(comma + 1 - from);
          from = comma + 1;
        }
        expect(pieces.map(({ length }) => length)).toEqual([...expected, bytes.length - from]);
      }),
      { numRuns: draws(400) },
    );
  });

  it("names the character of the header at which the JSON is invalid, also after the first piece", () => {
    const prefix = `{"é":1,${WIDE}"b":2,`;
    expect(String(members(`${prefix}x}`))).toContain(`has "x" at ${prefix.length}`);
    expect(String(members(prefix))).toContain("ends too soon");
  });

  it("finds no members after the end of the object", () => {
    expect(members(`{"a":1}${WIDE}{"b":2,"c":3}`)).toBeInstanceOf(Error);
    expect(members(`{"a":[1,2${WIDE}},"b":1}`)).toBeInstanceOf(Error);
  });
});

describe("tensors of a header", () => {
  const tensor = fc.record({
    name: fc
      .string({ unit: "binary", maxLength: 20 })
      .map((name) => (name.length % 3 === 0 ? `${name}\ud800` : name))
      .filter((name) => name !== "__metadata__"),
    dtype: fc.constantFrom(...DTYPES),
    shape: fc.array(fc.oneof(fc.integer({ min: 0, max: 3 }), fc.constant(2 ** 40)), { maxLength: 5 }),
  });
  const plans = fc
    .uniqueArray(tensor, { maxLength: 12, selector: ({ name }) => name })
    .map((validPlans) =>
      validPlans.filter(({ dtype, shape }) => Number.isSafeInteger(fileBytes(dtype, shape))),
    );

  it("are a Map in the order of the header, for any names and any order of the data", () => {
    fc.assert(
      fc.property(plans, fc.infiniteStream(fc.nat()), (drawnPlans, draws) => {
        const shuffledPlan = drawnPlans.toSorted(() => (draws.next().value % 3) - 1);
        const entries = new Map<string, TensorEntry>();
        let offset = 0;
        for (const plan of shuffledPlan) {
          const end = offset + fileBytes(plan.dtype, plan.shape);
          entries.set(plan.name, { ...plan, begin: offset, end });
          offset = end;
        }
        if (offset > Number.MAX_SAFE_INTEGER) return;
        const expected = new Map(drawnPlans.map(({ name }) => [name, entries.get(name)!]));
        const text = [...expected.values()].map(
          ({ name, dtype, shape, begin, end }) =>
            `${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [begin, end] })}`,
        );
        const { tensors } = parseHeader(PATH, bytesOf(`{${text}}`), offset);
        expect(tensors.size).toBe(expected.size);
        expect([...tensors.keys()]).toEqual([...expected.keys()]);
        expect([...tensors.values()]).toEqual([...expected.values()]);
        expect(new Map(tensors)).toEqual(expected);
        const messages: unknown[] = [];
        tensors.forEach(function (this: unknown, entry, name, table) {
          messages.push([this, entry, name, table === tensors]);
        }, "self");
        expect(messages).toEqual([...expected].map(([name, entry]) => ["self", entry, name, true]));
        for (const [name, entry] of expected) {
          expect(tensors.has(name)).toBe(true);
          expect(tensors.get(name)).toEqual(entry);
          for (const otherName of [`${name}x`, name.slice(1), `\0${name}`])
            expect(tensors.has(otherName)).toBe(expected.has(otherName));
        }
      }),
      { numRuns: draws(600) },
    );
  });

  it("are printed as a Map is, and has() is false for every name that is not a string", () => {
    const { tensors } = parseHeader(
      PATH,
      bytesOf('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
      1,
    );
    expect(inspect(tensors)).toMatch(/^Map\(1\) \{\s*'a' => .*dtype: 'U8'/s);
    for (const invalidName of [undefined, null, 0, {}, ["a"], Symbol("a")])
      expect(tensors.has(invalidName as string)).toBe(false);
  });
});

describe("packed values", () => {
  it("are read back as they were written", () => {
    const value = fc.oneof(
      fc.maxSafeNat(),
      fc.nat(300),
      fc.nat(52).map((bits) => 2 ** bits),
      fc.string({ unit: "binary", maxLength: 300 }),
      fc.string({ maxLength: 3 }).map((text) => `${text}\udfff\ud800`),
      fc.nat(20_000).map((length) => "é".repeat(length)),
    );
    fc.assert(
      fc.property(fc.array(value, { maxLength: 20 }), (values) => {
        const writer = new PackedWriter();
        const starts = values.map((item) => {
          const { length } = writer;
          if (typeof item === "string") writer.string(item);
          else writer.number(item);
          return length;
        });
        const reader = writer.end();
        for (const item of values)
          expect(typeof item === "string" ? reader.string() : reader.number()).toBe(item);
        for (const [i, item] of values.entries()) {
          reader.position = starts[i]!;
          if (typeof item === "string") reader.skipString();
          else reader.number();
          expect(reader.position).toBe(starts[i + 1] ?? writer.length);
        }
      }),
    );
  });
});

describe("an index of names", () => {
  it("finds every name that was added, and no other", () => {
    const name = fc.oneof(
      fc.string({ maxLength: 4 }),
      fc.nat(60).map(String),
      fc.nat(9).map((n) => "\0".repeat(n)),
    );
    fc.assert(
      fc.property(fc.array(name, { maxLength: 100 }), fc.array(name), (names, otherNames) => {
        const index = new NameIndex(names.length, (i) => names[i]!);
        for (const [i, indexedName] of names.entries())
          expect(index.add(i)).toBe(names.indexOf(indexedName) === i);
        for (const anyName of [...names, ...otherNames]) {
          const expectedIndex = names.indexOf(anyName);
          expect(index.find(anyName)).toBe(expectedIndex < 0 ? undefined : expectedIndex);
        }
      }),
      { numRuns: draws(500) },
    );
  });

  it("needs few steps for each name, even for names with equal sums, products or fixed polynomials", () => {
    // "Aa" and "BB" have equal hashes in the polynomial with base 31, so all 2^12 words of them collide
    const collidingNames = Array.from({ length: 1 << 12 }, (_, bits) =>
      Array.from({ length: 12 }, (_, i) => ((bits >> i) & 1 ? "Aa" : "BB")).join(""),
    );
    for (const names of [
      collidingNames,
      collidingNames.map((_, i) => "\0".repeat(i)),
      collidingNames.map((_, i) => `layer.${i}.weight`),
    ]) {
      let numReads = 0;
      const index = new NameIndex(names.length, (i) => {
        numReads++;
        return names[i]!;
      });
      for (let i = 0; i < names.length; i++) index.add(i);
      expect(numReads / names.length).toBeLessThan(4);
    }
  });
});

/**
 * A program that opens a file twice, finds every tensor of one in the other, and prints the number of bytes outside the heap per
 * tensor.
 */
const OPEN_TWICE = `
  const { SafetensorsFile } = await import(process.argv[1]);
  const [a, b] = [await SafetensorsFile.open(process.argv[2]), await SafetensorsFile.open(process.argv[2])];
  let found = 0;
  for (const { name, begin } of a.tensors.values()) if (b.tensors.get(name)?.begin === begin) found++;
  for (let i = 0; i < 4; i++) { gc(); await new Promise((resolve) => setTimeout(resolve, 20)); }
  console.log(found, process.memoryUsage().arrayBuffers / found / 2, a.tensors.size, b.tensors.size);
`;

describe("an open file", () => {
  const io = new URL("../../../dist/src/io/index.js", import.meta.url);
  const skipReason = existsSync(io) ? "" : " (not built: npm run build makes dist)";
  it.skipIf(skipReason !== "")(`needs a few bytes of memory for each of many tensors${skipReason}`, () => {
    const count = IS_FULL ? 300_000 : 100_000;
    const folder = mkdtempSync(join(tmpdir(), "lockstep-header-"));
    try {
      const path = join(folder, "many.safetensors");
      const entries = Array.from(
        { length: count },
        (_, i) => `"t${i}":{"dtype":"U8","shape":[1],"data_offsets":[${i},${i + 1}]}`,
      );
      const header = bytesOf(`{${entries}}`);
      const prefix = Buffer.alloc(8);
      prefix.writeBigUInt64LE(BigInt(header.length));
      writeFileSync(path, Buffer.concat([prefix, header, Buffer.alloc(count)]));
      // an object for each tensor, or the whole header as one text, would need more heap than these 32 MB
      const { stdout, stderr } = spawnSync(
        process.execPath,
        ["--max-old-space-size=32", "--expose-gc", "--input-type=module", "-e", OPEN_TWICE, io.href, path],
        { encoding: "utf8", env: { ...process.env, NODE_OPTIONS: "" } },
      );
      const [foundIndex, bytes] = stdout.split(" ").map(Number);
      expect(foundIndex, stderr.slice(0, 400)).toBe(count);
      // the header has more than 60 bytes per tensor, so it is not kept after it was read
      expect(bytes).toBeLessThan(48);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("the header that is written", () => {
  const plan = fc.record({
    name: fc.string(),
    dtype: fc.constantFrom(...DTYPES),
    shape: fc.array(fc.nat(5), { maxLength: 2 }).map((sizes) => [...sizes, 4]),
  });

  it("places the tensors one behind the other, each at a multiple of the size of its elements", () => {
    fc.assert(
      fc.property(fc.uniqueArray(plan, { selector: ({ name }) => name, maxLength: 6 }), (plans) => {
        const entries = [...planEntries(PATH, plans).values()];
        const header = encodeHeader(PATH, entries, {});
        expect(header.length % 8).toBe(0);
        expect(Buffer.from(header).toString()).toMatch(/\} {0,7}$/);
        let offset = 0;
        for (const { dtype, begin, end } of entries) {
          expect(begin).toBe(offset);
          expect((8 * begin) % Math.max(8, FILE_DTYPES[dtype].bits)).toBe(0);
          offset = end;
        }
      }),
      {
        examples: [
          [
            [
              { name: "a", dtype: "U8", shape: [1] },
              { name: "b", dtype: "F64", shape: [1] },
            ],
          ],
        ],
      },
    );
  });
});
