/** A damaged or false GGUF file is refused with a typed error, and no memory is allocated for sizes that it claims. */
import { readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { CheckpointFiles } from "../../../../src/checkpoints/stored/files.js";
import { openCheckpointFiles } from "../../../../src/checkpoints/stored/open.js";
import { PACKED_LAYOUT_NAMES } from "../../../../src/dialects/packed/packed.js";
import { FileError } from "../../../../src/errors.js";
import { draws } from "../../harness/draws.js";
import { GGUF, inFolder } from "../files/checkpoints.js";
import {
  bytesOf,
  type Contents,
  ggufBytes,
  type Piece,
  type TensorDescription,
  TYPE,
  u8,
  u32,
  u64,
} from "./files.js";

const MODEL = readFileSync(join(GGUF, "gguf-model.gguf"));

/** Opens bytes as a file; returns the thrown error. */
async function openOrError(bytes: Uint8Array): Promise<CheckpointFiles | Error> {
  return inFolder(async (folder) => {
    const path = join(folder, "x.gguf");
    writeFileSync(path, bytes);
    try {
      const checkpoint = await openCheckpointFiles(path);
      await checkpoint.close();
      return checkpoint;
    } catch (error) {
      if (error instanceof Error) return error;
      throw error;
    }
  });
}

const tensor = (overrides: Partial<TensorDescription> = {}): TensorDescription => ({
  ...{ name: "x", dimensions: [8], type: TYPE.f32, offset: 0 },
  ...overrides,
});
const BIG = 2n ** 64n - 1n;
const data = new Uint8Array(64);
const entry = (type: number, ...value: Piece[]): readonly Piece[] => ["k", u32(type), ...value];
const INVALID = Uint8Array.of(2, 0, 0, 0, 0, 0, 0, 0, 0xc3, 0x28);

/** A fault of a file, and the words that the error must contain. */
const WRONG: Readonly<Record<string, readonly [Contents, RegExp]>> = {
  "another magic": [{ magic: 0x46554748 }, /does not begin with "GGUF"/],
  "version 1": [{ version: 1 }, /version 1; little endian files of 2 and 3/],
  "version 4": [{ version: 4 }, /version 4/],
  "version 0": [{ version: 0 }, /version 0/],
  "big endian": [{ version: 3 << 24 }, /big endian/],
  "more tensors than bytes": [{ tensorCount: 1000 }, /number of tensors is 1000; .* no room/],
  "2^64 - 1 tensors": [{ tensorCount: BIG }, /number of tensors is 18446744073709551615/],
  "more metadata than bytes": [{ metadataCount: 1000 }, /number of metadata is 1000; .* no room/],
  "2^64 - 1 metadata": [{ metadataCount: BIG }, /number of metadata is 18446744073709551615/],
  "a name of 2^53 bytes": [{ metadata: [[u64(2n ** 53n)]], data }, /length of a key.* no file/],
  "a name beyond the file": [{ metadata: [[u64(2 ** 40), u64(0)]], data }, /truncated or damaged/],
  "a key that is not UTF-8": [{ metadata: [[INVALID, u32(0), u8(1)]] }, /a key.* not UTF-8/],
  "a value that is not UTF-8": [{ metadata: [entry(8, INVALID)] }, /value of "k".* not UTF-8/],
  "a key twice": [{ metadata: [entry(0, u8(1)), entry(0, u8(1))] }, /"k" occurs twice/],
  "a type of values that there is not": [{ metadata: [entry(13, u8(1))] }, /has the type 13/],
  "a truth value of 2": [{ metadata: [entry(7, u8(2))] }, /byte 2; a truth value/],
  "an array of 2^64 - 1": [{ metadata: [entry(9, u32(0), u64(BIG))] }, /length of the value of "k" is 1844/],
  "an array of 2^50 numbers": [{ metadata: [entry(9, u32(12), u64(2 ** 50))] }, /no room/],
  "an array of 2^50 texts": [{ metadata: [entry(9, u32(8), u64(2 ** 50))] }, /no room/],
  "a long text in an array": [{ metadata: [entry(9, u32(8), u64(1), u64(2 ** 40))] }, /truncated/],
  "an array of arrays": [{ metadata: [entry(9, u32(9), u64(1), u32(0), u64(1), u8(1))] }, /no arrays/],
  "an array of a type that there is not": [{ metadata: [entry(9, u32(99), u64(1), u8(1))] }, /type 99/],
  ...Object.fromEntries(
    [0, 3, 48, 2 ** 31 + 1].map((value) => [
      `an alignment of ${value}`,
      [{ metadata: [["general.alignment", u32(4), u32(value)]] }, /must be a power of two/] as const,
    ]),
  ),
  "an alignment of another type": [{ metadata: [["general.alignment", u32(10), u64(32)]] }, /as u32/],
  "a tensor twice": [{ tensors: [tensor(), tensor({ offset: 32 })], data }, /"x": occurs twice/],
  "a tensor with the name of scales": [
    {
      tensors: [
        tensor({ dimensions: [32], type: TYPE.mxfp4 }),
        tensor({ name: "x.block_scales", offset: 32 }),
      ],
      data,
    },
    /"x.block_scales": has the name of the scales/,
  ],
  "five dimensions": [{ tensors: [tensor({ dimensions: [1, 1, 1, 1, 1] })], data }, /5 dimensions; 4/],
  "a dimension of 2^64 - 1": [{ tensors: [tensor({ dimensions: [BIG] })], data }, /dimension is 1844/],
  "too many elements": [{ tensors: [tensor({ dimensions: [2 ** 40, 2 ** 40] })], data }, /too many elements/],
  "elements whose bytes wrap around 2^64": [
    { tensors: [tensor({ dimensions: [2n ** 31n, 2n ** 31n] })], data },
    /too many elements/,
  ],
  "elements beyond the file": [{ tensors: [tensor({ dimensions: [17] })], data }, /reach beyond the file/],
  "an offset beyond the file": [{ tensors: [tensor({ offset: 64 })], data }, /reach beyond the file/],
  "an offset of 2^53 - 32": [{ tensors: [tensor({ offset: 2 ** 53 - 32 })], data }, /reach beyond the file/],
  "an offset of 2^64 - 32": [{ tensors: [tensor({ offset: BIG - 31n })], data }, /offset is 1844/],
  "an offset that is not aligned": [{ tensors: [tensor({ offset: 16 })], data }, /no multiple of 32/],
  "tensors that overlap": [
    { tensors: [tensor({ dimensions: [16] }), tensor({ name: "y", offset: 32 })], data },
    /"y": .* overlap those of "x"/,
  ],
  "tensors that overlap, the later one first": [
    { tensors: [tensor({ name: "y", offset: 32 }), tensor({ dimensions: [16] })], data },
    /"y": .* overlap those of "x"/,
  ],
  "rows of MXFP4 with part of a block": [
    { tensors: [tensor({ dimensions: [16, 2], type: TYPE.mxfp4 })], data },
    /rows of 16; they must be whole blocks of 32/,
  ],
  "rows of NVFP4 with part of a block": [
    { tensors: [tensor({ dimensions: [96], type: TYPE.nvfp4 })], data },
    /rows of 96; they must be whole blocks of 64/,
  ],
  "an MXFP4 scalar": [{ tensors: [tensor({ dimensions: [], type: TYPE.mxfp4 })], data }, /whole blocks/],
};

it("the valid file from which the damaged ones are made is read without an error", async () => {
  const validContents = {
    metadata: [entry(0, u8(1)), ["general.alignment", u32(4), u32(32)]],
    tensors: [tensor()],
    data,
  };
  expect(await openOrError(ggufBytes(validContents))).not.toBeInstanceOf(Error);
  expect(await openOrError(ggufBytes({}))).not.toBeInstanceOf(Error);
});

describe("a damaged file is refused, with the fault in the message:", () => {
  it.each(Object.entries(WRONG))("%s", async (_, [contents, message]) => {
    const result = await openOrError(ggufBytes(contents));
    expect(result).toBeInstanceOf(FileError);
    expect(String(result)).toMatch(message);
  });
});

it("every other type is refused by its number", async () => {
  const plainTypes = [0, 1, 24, 25, 26, 27, 28, 30];
  const packedTypes = [
    2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 29, 34, 35, 39, 40, 41, 42,
  ];
  expect(packedTypes).toHaveLength(PACKED_LAYOUT_NAMES.length);
  for (let type = 0; type < 64; type++) {
    if (plainTypes.includes(type) || packedTypes.includes(type)) continue;
    const result = await openOrError(
      ggufBytes({ tensors: [tensor({ dimensions: [256], type })], data: new Uint8Array(2048) }),
    );
    expect(result, String(type)).toBeInstanceOf(FileError);
    expect(String(result)).toMatch(
      new RegExp(`tensor "x": has type number ${type}, which is not read; .*Q4_K.*F32, F16, BF16, F64`),
    );
  }
});

it("every file that is cut off is refused", async () => {
  const lastByte = MODEL.length - 1;
  const lengths = [
    ...Array.from({ length: 200 }, (_, i) => Math.floor((i * lastByte) / 199)),
    0,
    3,
    4,
    8,
    24,
  ];
  for (const length of lengths) {
    const result = await openOrError(MODEL.subarray(0, length));
    const padding = length > lastByte - 64;
    if (!padding) expect(result, String(length)).toBeInstanceOf(FileError);
  }
});

it("any change of bytes is read or refused, with a typed error", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(1400), fc.oneof(fc.nat(255), fc.constantFrom(0, 255, 128))), {
        minLength: 1,
        maxLength: 8,
      }),
      async (changes) => {
        const bytes = Uint8Array.from(MODEL);
        for (const [offset, value] of changes) bytes[offset] = value;
        const result = await openOrError(bytes);
        if (result instanceof Error) expect(result).toBeInstanceOf(FileError);
      },
    ),
    { numRuns: draws(300) },
  );
});

it("a small file that claims much takes no memory for it", async () => {
  const memoryBefore = process.memoryUsage().rss;
  for (const [contents] of Object.values(WRONG)) await openOrError(ggufBytes(contents));
  expect(process.memoryUsage().rss - memoryBefore).toBeLessThan(256 << 20);
});

it("a large file whose header claims all of it is not loaded", () =>
  inFolder(async (folder) => {
    const path = join(folder, "x.gguf");
    const claims = [
      bytesOf([u64(2 ** 33)]),
      bytesOf([...entry(9, u32(0), u64(2 ** 33))]),
      bytesOf([...entry(8, u64(2 ** 33))]),
    ];
    for (const claimedSize of claims) {
      writeFileSync(path, bytesOf([u32(0x46554747), u32(3), u64(0), u64(1), claimedSize]));
      truncateSync(path, 2 ** 34);
      const memoryBefore = process.memoryUsage().rss;
      await expect(openCheckpointFiles(path)).rejects.toThrow(
        /its header has \d+ bytes or more; 100000000 are the most/,
      );
      expect(process.memoryUsage().rss - memoryBefore).toBeLessThan(128 << 20);
    }
  }));

it("metadata longer than the first read are read completely", async () => {
  const texts = Array.from({ length: 20_000 }, (_, i) => `token ${i}`);
  const metadata = [["t", u32(9), u32(8), u64(texts.length), ...texts], entry(0, u8(1))];
  const result = await openOrError(ggufBytes({ metadata, tensors: [tensor()], data }));
  expect(result).not.toBeInstanceOf(Error);
  if (!(result instanceof Error)) expect(result.gguf?.metadata).toEqual({ t: "20000 of text", k: 1 });
});
