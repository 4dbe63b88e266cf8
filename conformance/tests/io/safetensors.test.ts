/** Safetensors: tensors are read back as written, and everything that the format forbids is refused with a message. */
import { readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FileError } from "../../../src/errors.js";
import { codeValue } from "../../../src/io/codes.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../../../src/io/dtypes.js";
import type { PutTensor, TensorPlan } from "../../../src/io/header/header.js";
import { removeTemporaries, watchTemporaries } from "../../../src/io/replace/temporaries.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../src/io/safetensors-writer.js";
import { draws } from "../harness/draws.js";
import { useFolder } from "./folder.js";

let folder = "";
useFolder((createdFolder) => {
  folder = createdFolder;
});

const DTYPES = Object.keys(FILE_DTYPES) as readonly FileDType[];

/** A file with this header text and a given number of data bytes. */
function rawFile(header: string | Uint8Array, dataBytes: number, length?: bigint): string {
  const bytes = typeof header === "string" ? new TextEncoder().encode(header) : header;
  const prefix = new Uint8Array(8);
  new DataView(prefix.buffer).setBigUint64(0, length ?? BigInt(bytes.length), true);
  const path = join(folder, "raw.safetensors");
  writeFileSync(path, Buffer.concat([prefix, bytes, new Uint8Array(dataBytes)]));
  return path;
}

async function refusal(path: string): Promise<string> {
  const error: unknown = await SafetensorsFile.open(path).then(
    (file) => file.close(),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(FileError);
  const { message } = error as FileError;
  expect(message).toContain(path);
  return message;
}

const entry = (dtype: string, shape: unknown, offsets: unknown): string =>
  JSON.stringify({ dtype, shape, data_offsets: offsets });

describe("safetensors", () => {
  it("keeps every tensor's type, shape and bytes, and the metadata", async () => {
    const names = fc.uniqueArray(
      fc.string({ unit: "grapheme", maxLength: 12 }).filter((name) => name !== "__metadata__"),
      {
        maxLength: 8,
      },
    );
    const shape = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 4 });
    const kinds = fc.array(fc.record({ dtype: fc.constantFrom(...DTYPES), shape }), {
      minLength: 8,
      maxLength: 8,
    });
    const metadata = fc.dictionary(fc.string(), fc.string(), { maxKeys: 4 });
    await fc.assert(
      fc.asyncProperty(names, kinds, metadata, async (keys, plans, extraMetadata) => {
        const tensors = keys.map((name, i) => ({ name, ...plans[i]! })).filter(wholeBytes);
        const path = join(folder, "out.safetensors");
        await writeSafetensors(path, { tensors, metadata: extraMetadata }, async (writeTensor) => {
          for (const tensor of tensors.toReversed()) await writeTensor(tensor.name, contentsOf(tensor));
        });
        const file = await SafetensorsFile.open(path);
        try {
          expect([...file.tensors.keys()].toSorted()).toEqual(tensors.map(({ name }) => name).toSorted());
          expect({ ...file.metadata }).toEqual({ ...extraMetadata });
          for (const tensor of tensors) {
            const foundEntry = file.entry(tensor.name);
            expect(foundEntry).toMatchObject({ dtype: tensor.dtype, shape: tensor.shape });
            expect(await file.read(foundEntry)).toEqual(contentsOf(tensor));
          }
        } finally {
          await file.close();
        }
      }),
      { numRuns: draws(60) },
    );
  });

  it("aligns the data of every tensor to its elements", async () => {
    const tensors: TensorPlan[] = DTYPES.map((dtype, i) => ({ name: `${i}`, dtype, shape: [4, 2] }));
    const path = join(folder, "out.safetensors");
    await writeSafetensors(path, { tensors }, async (writeTensor) => {
      for (const tensor of tensors) await writeTensor(tensor.name, contentsOf(tensor));
    });
    const dataStart = 8 + readFileSync(path).readUInt32LE(0);
    const file = await SafetensorsFile.open(path);
    for (const { begin, dtype } of file.tensors.values()) {
      expect((dataStart + begin) % Math.max(1, FILE_DTYPES[dtype].bits / 8)).toBe(0);
    }
    await file.close();
  });

  it.each([
    ["has 3 bytes", () => write3Bytes()],
    [
      "ends before its header does",
      () => rawFile("{}", 0, 200n),
      /header has 200 bytes and 2 follow.*truncated/,
    ],
    [
      "claims a header of 2^63 bytes",
      () => rawFile("{}", 0, 1n << 63n),
      /header would have 9223372036854775808 bytes/,
    ],
    [
      "has a header that is not UTF-8",
      () => rawFile(Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x7d), 0),
      /not UTF-8/,
    ],
    ["has a header that begins with a space", () => rawFile(" {}", 0), /must begin with "\{"/],
    ["has a header that is no JSON", () => rawFile("{,}", 0), /not valid JSON/],
    [
      "has a tensor twice",
      () => rawFile(`{"a":${entry("U8", [1], [0, 1])},"\\u0061":${entry("U8", [1], [1, 2])}}`, 2),
      /key "a" twice/,
    ],
    [
      "has metadata that are not strings",
      () => rawFile('{"__metadata__":{"a":1}}', 0),
      /must map strings to strings/,
    ],
    ["has an entry that is no object", () => rawFile('{"a":[]}', 0), /tensor "a".*not an object/],
    [
      "has a type that there is not",
      () => rawFile(`{"a":${entry("F7", [1], [0, 1])}}`, 1),
      /tensor "a": dtype "F7" is not one of BOOL/,
    ],
    [
      "has a type named like a method",
      () => rawFile(`{"a":${entry("toString", [1], [0, 1])}}`, 1),
      /dtype "toString"/,
    ],
    ["has a negative size", () => rawFile(`{"a":${entry("U8", [-1], [0, 1])}}`, 1), /shape \[-1\]/],
    ["has a fractional size", () => rawFile(`{"a":${entry("U8", [1.5], [0, 1])}}`, 1), /shape \[1.5\]/],
    ["has three offsets", () => rawFile(`{"a":${entry("U8", [1], [0, 1, 2])}}`, 1), /data_offsets \[0,1,2\]/],
    [
      "has offsets that run backwards",
      () => rawFile(`{"a":${entry("U8", [1], [1, 0])}}`, 1),
      /end before they begin/,
    ],
    [
      "has a shape that needs other bytes",
      () => rawFile(`{"a":${entry("F32", [2], [0, 4])}}`, 4),
      /F32 \[2\] needs 8 bytes.*hold 4/,
    ],
    [
      "has a shape beyond 2^53 elements",
      () => rawFile(`{"a":${entry("U8", [2 ** 40, 2 ** 40], [0, 4])}}`, 4),
      /tensor "a".*needs/,
    ],
    [
      "has half a byte of F4",
      () => rawFile(`{"a":${entry("F4", [3], [0, 1])}}`, 1),
      /F4 \[3\] needs 1.5 bytes/,
    ],
    [
      "has tensors that overlap",
      () => rawFile(`{"a":${entry("U8", [2], [0, 2])},"b":${entry("U8", [2], [1, 3])}}`, 3),
      /tensor "b".*overlap.*ends at 2/,
    ],
    [
      "has a hole",
      () => rawFile(`{"a":${entry("U8", [1], [0, 1])},"b":${entry("U8", [1], [2, 3])}}`, 3),
      /tensor "b".*leave a gap/,
    ],
    [
      "has a tensor beyond its end",
      () => rawFile(`{"a":${entry("U8", [8], [0, 8])}}`, 5),
      /tensor "a".*5 bytes of data.*truncated/,
    ],
    [
      "has bytes after the last tensor",
      () => rawFile(`{"a":${entry("U8", [1], [0, 1])}}`, 3),
      /2 bytes follow/,
    ],
    ["is a folder", () => folder, /not a file|folder/],
    ["is not there", () => join(folder, "none"), /no such file/],
  ] as [string, () => string, RegExp?][])("refuses a file that %s", async (_, make, message) => {
    expect(await refusal(make())).toMatch(message ?? /has 3 bytes/);
  });

  it("names the existing tensors if a tensor does not exist", async () => {
    const file = await SafetensorsFile.open(rawFile(`{"here":${entry("U8", [1], [0, 1])}}`, 1));
    expect(() => file.entry("gone")).toThrow(/tensor "gone" is needed and not there; there are here/);
    await file.close();
  });

  const plan = { tensors: [{ name: "a", dtype: "U8", shape: [2] }] } as const;
  it.each<[string, (writeTensor: PutTensor) => Promise<void>, RegExp]>([
    ["the body throws", () => Promise.reject(new Error("stop")), /stop/],
    ["bytes are left out", (writeTensor) => writeTensor("a", Uint8Array.of(1)), /1 bytes were not given/],
    [
      "bytes are too many",
      (writeTensor) => writeTensor("a", Uint8Array.of(1, 2), 1),
      /more than its 2 bytes/,
    ],
    ["a tensor was not planned", (writeTensor) => writeTensor("b", Uint8Array.of(1)), /not planned/],
  ])("leaves nothing behind, and the old file alone, where %s", async (_, body, message) => {
    const path = join(folder, "out.safetensors");
    writeFileSync(path, "old");
    await expect(writeSafetensors(path, plan, body)).rejects.toThrow(message);
    expect(readdirSync(folder)).toEqual(["out.safetensors"]);
    expect(readFileSync(path, "utf8")).toBe("old");
  });

  it("removes unfinished files if asked to, and reports if there are any", async () => {
    // what tests of earlier files of this worker could not remove
    removeTemporaries();
    const unfinishedStates: boolean[] = [];
    watchTemporaries((isUnfinished) => unfinishedStates.push(isUnfinished));
    const path = join(folder, "out.safetensors");
    await expect(
      writeSafetensors(path, plan, async (writeTensor) => {
        await writeTensor("a", Uint8Array.of(1, 2));
        expect(readdirSync(folder)).toHaveLength(1);
        removeTemporaries();
        expect(readdirSync(folder)).toEqual([]);
      }),
    ).rejects.toThrow(/cannot be written/);
    watchTemporaries(() => {});
    expect([unfinishedStates[0], unfinishedStates.at(-1)]).toEqual([true, false]);
  });

  it("refuses to replace a folder or device, and writes through symbolic links", async () => {
    const writeA = (write: PutTensor): Promise<void> => write("a", Uint8Array.of(1, 2));
    await expect(writeSafetensors(folder, plan, writeA)).rejects.toThrow(/other than a file/);
    await expect(writeSafetensors("/dev/null", plan, writeA)).rejects.toThrow(/other than a file/);
    await expect(writeSafetensors(join(folder, "no", "out"), plan, writeA)).rejects.toThrow(
      /no such file or folder/,
    );
    writeFileSync(join(folder, "real"), "old");
    symlinkSync(join(folder, "real"), join(folder, "link"));
    await writeSafetensors(join(folder, "link"), plan, writeA);
    expect(readFileSync(join(folder, "real")).length).toBeGreaterThan(8);
    expect(readdirSync(folder).toSorted()).toEqual(["link", "real"]);
  });

  it("refuses a repeated name, the metadata's name, and codes that do not fill whole bytes", async () => {
    const path = join(folder, "out.safetensors");
    const write = (tensors: readonly TensorPlan[]): Promise<void> =>
      writeSafetensors(path, { tensors }, async () => {});
    const a = { name: "a", dtype: "U8", shape: [0] } as const;
    await expect(write([a, a])).rejects.toThrow(/tensor "a": the name is taken/);
    await expect(write([{ ...a, name: "__metadata__" }])).rejects.toThrow(/the name is taken/);
    await expect(write([{ ...a, dtype: "F6_E2M3", shape: [3] }])).rejects.toThrow(
      /does not fill whole bytes/,
    );
  });
});

describe("the value of a code", () => {
  it.each<[FileDType, bigint, number | bigint]>([
    ["F8_E4M3", 0x7en, 448],
    ["F8_E4M3", 0xffn, Number.NaN],
    ["F8_E4M3", 0x01n, 2 ** -9],
    ["F8_E5M2", 0xfcn, -Infinity],
    ["F8_E5M2", 0x7dn, Number.NaN],
    ["F8_E8M0", 0x00n, 2 ** -127],
    ["F8_E8M0", 0xffn, Number.NaN],
    ["F8_E4M3FNUZ", 0x80n, Number.NaN],
    ["F4", 0xfn, -6],
    ["F6_E3M2", 0x1fn, 28],
    ["F16", 0x8000n, -0],
    ["BF16", 0x3f80n, 1],
    ["F32", 0x00000001n, 2 ** -149],
    ["F64", 0x3ff0000000000000n, 1],
    ["I8", 0xffn, -1n],
    ["U64", 2n ** 64n - 1n, 2n ** 64n - 1n],
  ])("%s %x is as its format says", (dtype, code, value) => expect(codeValue(dtype, code)).toBe(value));
});

function wholeBytes({ dtype, shape }: TensorPlan): boolean {
  return Number.isInteger(fileBytes(dtype, shape));
}

function contentsOf({ name, dtype, shape }: TensorPlan): Uint8Array {
  return Uint8Array.from({ length: fileBytes(dtype, shape) }, (_, i) => (i * 37 + name.length) & 255);
}

function write3Bytes(): string {
  const path = join(folder, "short.safetensors");
  writeFileSync(path, "abc");
  return path;
}
