/** The bytes of a file's tensors: single elements of every width, packed codes, and any range. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, FileError } from "../../../src/errors.js";
import { codeValue, partsOf, unpackCodes } from "../../../src/io/codes.js";
import { FILE_DTYPES, type FileDType } from "../../../src/io/dtypes.js";
import { encodeFrame, Frame } from "../../../src/io/frames/frame.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { sixBitBytes, sixBitDType } from "../../../src/io/six-bit.js";
import { MemorySource } from "../../../src/io/source.js";
import { draws } from "../harness/draws.js";

const DTYPES = Object.keys(FILE_DTYPES) as readonly FileDType[];

/** Bits [from, from + count) of bytes, lowest first. By definition they are a packed element. */
function bitsOf(bytes: Uint8Array, from: number, count: number): bigint {
  let code = 0n;
  for (let i = 0; i < count; i++) {
    const bit = from + i;
    if ((bytes[bit >> 3]! >> (bit & 7)) & 1) code |= 1n << BigInt(i);
  }
  return code;
}

describe("elements of a file", () => {
  it.each(DTYPES)("%s are consecutive bits of it, the lowest first, at any byte offset", (dtype) => {
    const { bits } = FILE_DTYPES[dtype];
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 24, maxLength: 48 }), fc.nat(7), (fileBytes, offset) => {
        const wholeLength = fileBytes.length - offset - ((fileBytes.length - offset) % 24);
        const bytes = fileBytes.subarray(offset, offset + wholeLength);
        const codes = unpackCodes(dtype, bytes);
        const width = Math.max(8, bits);
        for (let i = 0; i < (wholeLength * 8) / bits; i++)
          expect(bitsOf(codes, i * width, width)).toBe(bitsOf(bytes, i * bits, bits));
      }),
    );
  });

  it("C64 are two numbers, the real part first; all others are one", () => {
    fc.assert(
      fc.property(fc.float(), fc.float(), fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (re, im, code) => {
        const bytes = new Uint8Array(Float32Array.of(re, im).buffer);
        expect(partsOf("C64", bitsOf(bytes, 0, 64))).toEqual([re, im]);
        for (const dtype of DTYPES.filter((name) => name !== "C64")) {
          const ownBits = BigInt.asUintN(FILE_DTYPES[dtype].bits, code);
          expect(partsOf(dtype, ownBits)).toEqual([codeValue(dtype, ownBits)]);
        }
      }),
    );
  });
});

describe("codes of 6 bits", () => {
  it("are stored four in three bytes of a file, in order, and read back; counts that do not fill a byte are refused", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(63), { maxLength: 40 }), (values) => {
        const codes = Uint8Array.from(values);
        if (codes.length % 4 !== 0) {
          expect(() => sixBitBytes("x", codes)).toThrow(DTypeError);
          return;
        }
        const packedBytes = sixBitBytes("x", codes);
        expect(packedBytes.length).toBe((codes.length * 3) / 4);
        for (const [i, code] of codes.entries()) expect(bitsOf(packedBytes, 6 * i, 6)).toBe(BigInt(code));
        expect(unpackCodes("F6_E2M3", packedBytes)).toEqual(codes);
      }),
    );
    const sixBitDtypes = DTYPES.filter((name) => sixBitDType(name) !== undefined);
    expect(sixBitDtypes).toEqual(DTYPES.filter((name) => FILE_DTYPES[name].bits === 6));
  });
});

describe("reading a part of a tensor", () => {
  const MEGABYTE = 1 << 20;
  /** Sizes around the limit up to which tensors are read together, and large sizes. */
  const SIZES = [
    0,
    1,
    7,
    MEGABYTE / 4,
    MEGABYTE / 4 + 1,
    3,
    MEGABYTE,
    2 * MEGABYTE + 5,
    0,
    100,
    MEGABYTE - 1,
  ];
  const data = Uint8Array.from(
    { length: SIZES.reduce((a, b) => a + b) },
    (_, i) => (Math.imul(i, 0x9e3779b1) >>> 24) ^ (i >> 16),
  );
  let folder = "";
  let file: SafetensorsFile;
  const memory = new MemorySource(
    "memory",
    SIZES.map((size, i) => ({ name: `t${i}`, dtype: "U8", shape: [size], bytes: contentOf(i) })),
  );
  const smallTensor = { name: "t9", dtype: "U8", shape: [100], bytes: contentOf(9) } as const;
  const frame = Frame.decode("frame", Buffer.concat(encodeFrame("frame", [smallTensor], {}).slice(1)));
  function contentOf(i: number): Uint8Array {
    const begin = SIZES.slice(0, i).reduce((a, b) => a + b, 0);
    return data.subarray(begin, begin + SIZES[i]!);
  }
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "lockstep-bytes-"));
    const path = join(folder, "a.safetensors");
    let offset = 0;
    const entries = SIZES.map((size, i) => {
      const begin = offset;
      offset += size;
      return `"t${i}":{"dtype":"U8","shape":[${size}],"data_offsets":[${begin},${offset}]}`;
    });
    const header = Buffer.from(`{${entries}}`);
    const prefix = Buffer.alloc(8);
    prefix.writeBigUInt64LE(BigInt(header.length));
    writeFileSync(path, Buffer.concat([prefix, header, data]));
    file = await SafetensorsFile.open(path);
  });
  afterAll(async () => {
    await file.close();
    rmSync(folder, { recursive: true });
  });

  it("returns the requested bytes, for parts of any size read in any order", async () => {
    const part = fc.nat(SIZES.length - 1).chain((i) => {
      const edge = fc.oneof(
        fc.nat(SIZES[i]!),
        fc.constantFrom(0, 1, MEGABYTE / 4, MEGABYTE).map((n) => Math.min(n, SIZES[i]!)),
      );
      return fc.tuple(fc.constant(i), edge, edge);
    });
    await fc.assert(
      fc.asyncProperty(fc.array(part, { minLength: 1, maxLength: 6 }), async (ranges) => {
        const reads = ranges.map(async ([i, firstShare, secondShare]) => {
          const [begin, end] = [Math.min(firstShare, secondShare), Math.max(firstShare, secondShare)];
          const expected = Buffer.from(contentOf(i).subarray(begin, end));
          for (const source of [file, memory]) {
            const bytesRead = await source.read(source.entry(`t${i}`), begin, end);
            expect(expected.equals(bytesRead)).toBe(true);
            const target = new Uint8Array(new SharedArrayBuffer(expected.length + 2), 1, expected.length);
            await source.readInto(source.entry(`t${i}`), begin, target);
            expect(expected.equals(target)).toBe(true);
            expect(new Uint8Array(target.buffer).at(0)).toBe(0);
            expect(new Uint8Array(target.buffer).at(-1)).toBe(0);
            // the result belongs to the caller
            bytesRead.fill(0);
          }
        });
        await Promise.all(reads);
      }),
      {
        numRuns: draws(150),
        // the last byte of a window, and the first byte after it
        examples: SIZES.flatMap((size, i) =>
          size > MEGABYTE
            ? [
                [
                  [
                    [i, 0, 1],
                    [i, MEGABYTE, MEGABYTE + 1],
                  ],
                ] as [[number, number, number][]],
              ]
            : [],
        ),
      },
    );
    for (const [i, size] of SIZES.entries()) expect((await file.read(file.entry(`t${i}`))).length).toBe(size);
  });

  it("refuses bytes that the tensor does not have, and entries of another file", async () => {
    const rangeBound = fc.oneof(
      fc.integer({ min: -3, max: 110 }),
      fc.constantFrom(0.5, Number.NaN, Infinity, 2 ** 53),
    );
    await fc.assert(
      fc.asyncProperty(rangeBound, rangeBound, async (begin, end) => {
        const isValid =
          Number.isInteger(begin) && Number.isInteger(end) && 0 <= begin && begin <= end && end <= 100;
        for (const source of [file, memory, frame]) {
          const entry = source.entry("t9");
          const pendingRead = source.read(entry, begin, end);
          if (isValid) expect((await pendingRead).length).toBe(end - begin);
          else await expect(pendingRead).rejects.toThrow(ArgumentError);
          const target = new Uint8Array(7);
          const pendingFill = source.readInto(entry, begin, target);
          if (Number.isInteger(begin) && 0 <= begin && begin + 7 <= 100) await pendingFill;
          else await expect(pendingFill).rejects.toThrow(ArgumentError);
        }
      }),
    );
    for (const source of [file, memory, frame]) {
      const entry = source.entry("t9");
      for (const invalidTarget of [
        undefined,
        null,
        7,
        "bytes",
        [1, 2],
        {},
        new Float32Array(2),
        new ArrayBuffer(7),
      ])
        await expect(source.readInto(entry, 0, invalidTarget as never)).rejects.toThrow(
          /readInto: into is .* Uint8Array/,
        );
      for (const begin of [undefined, null, "0", 0n, {}])
        await expect(source.readInto(entry, begin as never, new Uint8Array(7))).rejects.toThrow(
          ArgumentError,
        );
    }
    const reopenedFile = await SafetensorsFile.open(file.path);
    for (const invalidEntry of [
      reopenedFile.entry("t1"),
      { ...file.entry("t1") },
      memory.entry("t1"),
      undefined,
      null,
      "t1",
      {},
    ])
      await expect(file.read(invalidEntry as never)).rejects.toThrow(ArgumentError);
    await reopenedFile.close();
    for (const name of ["t1", "t7"])
      await expect(reopenedFile.read(reopenedFile.entry(name))).rejects.toThrow(FileError);
  });

  it("names the first eight tensors if the requested one does not exist", () => {
    const sourceOf = (count: number): MemorySource =>
      new MemorySource(
        "memory",
        Array.from({ length: count }, (_, i) => ({
          name: `n${i}`,
          dtype: "U8",
          shape: [0],
          bytes: new Uint8Array(),
        })),
      );
    const names = "n0, n1, n2, n3, n4, n5, n6, n7";
    expect(() => sourceOf(0).entry("x")).toThrow(/there are none$/);
    expect(() => sourceOf(8).entry("x")).toThrow(new RegExp(`there are ${names}$`));
    expect(() => sourceOf(9).entry("x")).toThrow(new RegExp(`there are ${names}, …$`));
  });
});
