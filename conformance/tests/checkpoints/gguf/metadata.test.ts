/** Every value of the metadata can be read on demand: arrays with all elements, strings with all characters. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { inspectCheckpoint } from "../../../../src/checkpoints/api/inspect.js";
import type { MetadataContent } from "../../../../src/checkpoints/gguf/facts.js";
import type { GgufFile } from "../../../../src/checkpoints/gguf/file.js";
import { MAX_ARRAY_ELEMENTS } from "../../../../src/checkpoints/gguf/metadata.js";
import { openGgufFile } from "../../../../src/checkpoints/gguf/open.js";
import { FileError } from "../../../../src/errors.js";
import { draws } from "../../harness/draws.js";
import { inFolder } from "../files/checkpoints.js";
import { bytesOf, ggufBytes, type Piece, u8, u32, u64 } from "./files.js";

const number = (size: number, write: (view: DataView) => void): Uint8Array => {
  const bytes = new Uint8Array(size);
  write(new DataView(bytes.buffer));
  return bytes;
};
const safe = Number.MAX_SAFE_INTEGER;
const integerType = (min: bigint, max: bigint) =>
  fc
    .bigInt({ min, max })
    .map((value) => (value <= BigInt(safe) && value >= -BigInt(safe) ? Number(value) : `${value}`));

/** For each type: its number, its values, and the bytes of one. */
const TYPES: readonly (readonly [
  number,
  fc.Arbitrary<string | number | boolean>,
  (value: never) => Piece,
])[] = [
  [0, fc.nat(255), (value: number) => u8(value)],
  [1, fc.integer({ min: -128, max: 127 }), (value: number) => number(1, (view) => view.setInt8(0, value))],
  [2, fc.nat(65535), (value: number) => number(2, (view) => view.setUint16(0, value, true))],
  [
    3,
    fc.integer({ min: -32768, max: 32767 }),
    (value: number) => number(2, (view) => view.setInt16(0, value, true)),
  ],
  [4, fc.nat(2 ** 32 - 1), (value: number) => u32(value)],
  [5, fc.integer(), (value: number) => number(4, (view) => view.setInt32(0, value, true))],
  [6, fc.float({ noNaN: true }), (value: number) => number(4, (view) => view.setFloat32(0, value, true))],
  [7, fc.boolean(), (value: boolean) => u8(Number(value))],
  [8, fc.string({ unit: "grapheme", maxLength: 3000 }), (value: string) => value],
  [10, integerType(0n, 2n ** 64n - 1n), (value: number | string) => u64(BigInt(value))],
  [11, integerType(-(2n ** 63n), 2n ** 63n - 1n), (value: number | string) => u64(BigInt(value))],
  [12, fc.double({ noNaN: true }), (value: number) => number(8, (view) => view.setFloat64(0, value, true))],
];

interface Drawn {
  readonly value: MetadataContent;
  readonly pieces: readonly Piece[];
}

const metadataEntries: fc.Arbitrary<Drawn> = fc.constantFrom(...TYPES).chain(([type, values, write]) => {
  const pieceOf = write as (value: unknown) => Piece;
  return fc.oneof(
    values.map((value) => ({ value, pieces: [u32(type), pieceOf(value)] })),
    fc.array(values, { maxLength: 40 }).map((value) => ({
      value,
      pieces: [u32(9), u32(type), u64(value.length), ...value.map(pieceOf)],
    })),
  );
});

async function withFile<T>(entries: readonly Drawn[], body: (file: GgufFile) => Promise<T>): Promise<T> {
  return inFolder(async (folder) => {
    const path = join(folder, "x.gguf");
    writeFileSync(path, ggufBytes({ metadata: entries.map(({ pieces }, i) => [`key ${i}`, ...pieces]) }));
    const file = await openGgufFile(path);
    try {
      return await body(file);
    } finally {
      await file.close();
    }
  });
}

describe("readMetadataContent", () => {
  it("returns every value that was written", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(metadataEntries, { minLength: 1, maxLength: 5 }), (entries) =>
        withFile(entries, async (file) => {
          for (const [i, { value }] of entries.entries())
            expect(await file.readMetadataContent(`key ${i}`)).toEqual(value);
          expect(await file.readMetadataContent("another key")).toBeUndefined();
        }),
      ),
      { numRuns: draws(40) },
    );
  });

  it("refuses an array of more than 2^22 elements, which the file still describes", async () => {
    const count = MAX_ARRAY_ELEMENTS + 1;
    const pieces = [u32(9), u32(0), u64(count), new Uint8Array(count)];
    await withFile([{ value: [], pieces }], async (file) => {
      expect(file.facts.metadata["key 0"]).toBe(`${count} of u8`);
      const failure = await file.readMetadataContent("key 0").catch((error: unknown) => error);
      expect(failure).toBeInstanceOf(FileError);
      expect(String(failure)).toMatch(/4194305 elements; arrays of at most 4194304/);
    });
  });

  it("refuses a truth value of an array that is neither 0 nor 1, and a string that is not UTF-8", async () => {
    const wrongPieces: readonly (readonly Piece[])[] = [
      [u32(9), u32(7), u64(2), u8(1), u8(2)],
      [u32(9), u32(8), u64(1), u64(2), Uint8Array.of(0xc3, 0x28)],
    ];
    for (const pieces of wrongPieces)
      await withFile([{ value: [], pieces }], async (file) => {
        await expect(file.readMetadataContent("key 0")).rejects.toThrow(/truth value|not UTF-8/);
      });
  });
});

it("inspect still describes arrays and long strings in words", async () => {
  const long = "x".repeat(1025);
  const metadata = [
    ["list", u32(9), u32(8), u64(2), "a", "b"],
    ["text", u32(8), long],
  ];
  await inFolder(async (folder) => {
    const path = join(folder, "x.gguf");
    writeFileSync(path, ggufBytes({ metadata }));
    const { gguf } = await inspectCheckpoint(path);
    expect(gguf?.metadata).toEqual({ list: "2 of text", text: "text of 1025 bytes" });
  });
  expect(bytesOf([long]).length).toBe(1033);
});
