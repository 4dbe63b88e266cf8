/**
 * Malicious files: each is read exactly as its bytes say, or refused with a `FileError`, and nothing larger than the
 * file is allocated.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { FileError } from "../../../../src/errors.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../../../../src/io/dtypes.js";
import { parseHeader } from "../../../../src/io/header/header.js";
import { loadCheckpoint } from "../../../../src/io/index.js";
import { SafetensorsFile } from "../../../../src/io/safetensors.js";
import { writeSafetensors } from "../../../../src/io/safetensors-writer.js";
import { Linear } from "../../../../src/modules/linear.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { useFolder } from "../folder.js";

let folder = "";
let path = "";
useFolder((createdFolder) => {
  folder = createdFolder;
  path = join(folder, "file.safetensors");
});

const backend = useBackend({ threads: 1, datapath: "hopper" });
const DTYPES = Object.keys(FILE_DTYPES) as readonly FileDType[];
const PATH = "hostile.safetensors";

/** The parsed header, or `refused`. Throws if the error is not a `FileError` that names the file. */
function parseOrRefuse(header: Uint8Array, dataBytes: number): ReturnType<typeof parseHeader> | "refused" {
  try {
    return parseHeader(PATH, header, dataBytes);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    expect(error.message).toContain(PATH);
    return "refused";
  }
}

/** Checks that a parsed header covers its data exactly once and that all sizes are right. */
function expectSound({ tensors }: ReturnType<typeof parseHeader>, dataBytes: number): void {
  let offset = 0;
  for (const { dtype, shape, begin, end } of [...tensors.values()].toSorted(
    (a, b) => a.begin - b.begin || a.end - b.end,
  )) {
    expect(begin).toBe(offset);
    expect(end - begin).toBe(fileBytes(dtype, shape));
    offset = end;
  }
  expect(offset).toBe(dataBytes);
}

const sizes = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 0, max: 4 }).map(String) },
  fc.constantFrom(
    "-1",
    "-0",
    "1.5",
    "1.0",
    "1e0",
    "1e400",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "18446744073709551616",
    "NaN",
    "null",
    '"1"',
    "[1]",
    "true",
    "1.00000000000000000001",
    "01",
  ),
);
const lists = fc.oneof(
  { weight: 6, arbitrary: fc.array(sizes, { maxLength: 4 }).map((dimensions) => `[${dimensions}]`) },
  fc.constantFrom("[]", "null", "{}", "1", '"[1]"', "[0,", `[${"[".repeat(2000)}`),
);
const entries = fc.record({
  name: fc.oneof(
    fc.constantFrom('"a"', '"b"', '"\\u0061"', '"__metadata__"', '"__proto__"', '"\\ud800"', "a", '"'),
    fc.string({ maxLength: 3 }).map((name) => JSON.stringify(name)),
  ),
  dtype: fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...DTYPES).map((dtypeName) => `"${dtypeName}"`) },
    fc.constantFrom('"F7"', '"toString"', "null", "1", '"f32"', '"U8","dtype":"U8"'),
  ),
  shape: lists,
  offsets: lists,
});

describe("a header", () => {
  it("of random parts is refused or agrees with the file", () => {
    const headers = fc.tuple(
      fc.array(entries, { maxLength: 3 }),
      fc.constantFrom("", " ", "}", "\0", "\n\n"),
      fc.integer({ min: 0, max: 8 }),
    );
    fc.assert(
      fc.property(headers, ([members, trailingBytes, dataBytes]) => {
        const text = members.map(
          ({ name, dtype, shape, offsets }) =>
            `${name}:{"dtype":${dtype},"shape":${shape},"data_offsets":${offsets}}`,
        );
        const header = parseOrRefuse(new TextEncoder().encode(`{${text}}${trailingBytes}`), dataBytes);
        if (header !== "refused") expectSound(header, dataBytes);
      }),
      { numRuns: draws(20_000) },
    );
  });

  it("of one tensor is accepted only if offsets, type and shape agree and are decimal integers", () => {
    const anyShape = fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 3 });
    fc.assert(
      fc.property(
        fc.constantFrom(...DTYPES),
        anyShape,
        fc.nat(2),
        fc.integer({ min: -1, max: 1 }),
        fc.nat(1),
        (dtype, shape, begin, lengthError, extraBytes) => {
          const end = begin + fileBytes(dtype, shape) + lengthError;
          const text = JSON.stringify({ t: { dtype, shape, data_offsets: [begin, end] } });
          const isValid = begin === 0 && lengthError === 0 && extraBytes === 0 && Number.isInteger(end);
          expect(parseOrRefuse(new TextEncoder().encode(text), end + extraBytes) !== "refused").toBe(isValid);
        },
      ),
      { numRuns: draws(5000) },
    );
  });
});

/** A file with a few tensors and metadata, as bytes. */
async function validFile(): Promise<Buffer> {
  const tensors = DTYPES.slice(0, 6).map((dtype, i) => ({ name: `t${i}`, dtype, shape: [2, 2 * i] }));
  await writeSafetensors(path, { tensors, metadata: { "lockstep.t": '{"a":[1]}' } }, async (writeTensor) => {
    for (const { name, dtype, shape } of tensors)
      await writeTensor(name, new Uint8Array(fileBytes(dtype, shape)).fill(7));
  });
  return readFileSync(path);
}

/** Opens the file at `path` and reads all of it. */
async function readAll(): Promise<"refused" | number> {
  try {
    const file = await SafetensorsFile.open(path);
    let bytes = 0;
    try {
      for (const entry of file.tensors.values()) bytes += (await file.read(entry)).length;
    } finally {
      await file.close();
    }
    return bytes;
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    expect(error.message).toContain(path);
    return "refused";
  }
}

describe("a file", () => {
  it("truncated anywhere is refused", async () => {
    const bytes = await validFile();
    for (let length = 0; length < bytes.length; length++) {
      writeFileSync(path, bytes.subarray(0, length));
      expect(await readAll(), `cut to ${length}`).toBe("refused");
    }
    writeFileSync(path, Buffer.concat([bytes, Buffer.alloc(1)]));
    expect(await readAll()).toBe("refused");
  });

  it("with any byte changed is refused or read completely", async () => {
    const bytes = await validFile();
    const headerEnd = 8 + bytes.readUInt32LE(0);
    const byteChange = fc.record({
      position: fc.nat(headerEnd - 1),
      numRemoved: fc.nat(3),
      insertion: fc.oneof(
        fc.uint8Array({ maxLength: 3 }),
        fc
          .constantFrom("[", "{", '"', "0", "9", "-", ".", "e9", ",", ":", "\\", "}")
          .map((text) => new TextEncoder().encode(text)),
      ),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(byteChange, { minLength: 1, maxLength: 3 }),
        fc.boolean(),
        async (byteChanges, keepLength) => {
          let damagedBytes = bytes;
          for (const { position, numRemoved, insertion } of byteChanges)
            damagedBytes = Buffer.concat([
              damagedBytes.subarray(0, position),
              insertion,
              damagedBytes.subarray(position + numRemoved),
            ]);
          // the length field is updated, so that the changed header is parsed
          if (keepLength)
            damagedBytes.writeBigUInt64LE(
              BigInt(Math.max(0, headerEnd - 8 + damagedBytes.length - bytes.length)),
              0,
            );
          writeFileSync(path, damagedBytes);
          const results = await readAll();
          if (results !== "refused")
            expect(results).toBe(damagedBytes.length - 8 - Number(damagedBytes.readBigUInt64LE(0)));
        },
      ),
      { numRuns: draws(10_000) },
    );
  });

  it("whose header claims more data than the file has allocates no memory for them", async () => {
    const lengths = [0n, 2n, 9n, 2n ** 31n, 99_999_999n, 10n ** 8n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n];
    const NativeArray = Uint8Array;
    let largest = 0;
    for (const length of lengths) {
      const prefix = Buffer.alloc(16, 0x20);
      prefix.writeBigUInt64LE(length);
      writeFileSync(path, prefix);
      vi.stubGlobal(
        "Uint8Array",
        new Proxy(NativeArray, {
          construct(target, args: [number]) {
            if (typeof args[0] === "number") largest = Math.max(largest, args[0]);
            return Reflect.construct(target, args) as Uint8Array;
          },
        }),
      );
      try {
        expect(await readAll()).toBe("refused");
      } finally {
        vi.unstubAllGlobals();
      }
    }
    expect(largest).toBeLessThanOrEqual(16);
  });

  it("with deeply nested JSON is refused, in metadata, in entries and next to them", async () => {
    for (const depth of [513, 100_000]) {
      for (const [original, replacement] of [
        ["", ""],
        ['{"a":', "}"],
        ['{"__metadata__":{"a":', "}}"],
        ['{"a":{"shape":', "}}"],
      ]) {
        const header = Buffer.from(`${original}${'{"a":['.repeat(depth)}${"]}".repeat(depth)}${replacement}`);
        const prefix = Buffer.alloc(8);
        prefix.writeBigUInt64LE(BigInt(header.length));
        writeFileSync(path, Buffer.concat([prefix, header]));
        expect(await readAll()).toBe("refused");
      }
    }
  });

  it("of another kind is refused as a checkpoint, whatever its record says", async () => {
    using module = new Linear(backend(), 32, 32, { bias: false });
    const value = fc.oneof(fc.jsonValue(), fc.constantFrom("{}", "1e400", "-1", '"', "[".repeat(600)));
    const record = fc.record(
      {
        version: fc.constantFrom(1, 1, 1, 2, "1"),
        quantized: value,
        steps: value,
        random: fc.oneof(value, fc.constant({ seed: "1", offset: "0" })),
        extra: value,
        sha256: value,
      },
      { requiredKeys: [] },
    );
    const texts = fc.oneof(
      record.map((jsonRecord) => JSON.stringify(jsonRecord)),
      record.map((jsonRecord) => JSON.stringify(jsonRecord).replace('"extra":', '"extra":1e999,"x":')),
      fc.string(),
    );
    await fc.assert(
      fc.asyncProperty(texts, async (text) => {
        await writeSafetensors(
          path,
          { tensors: [], metadata: { "lockstep.checkpoint": text } },
          async () => {},
        );
        await expect(loadCheckpoint(path, { module })).rejects.toThrow(FileError);
      }),
      { numRuns: draws(500) },
    );
  });
});

describe("a path that is not a file", () => {
  it.each<[string, () => void | Promise<void>, RegExp]>([
    ["a folder", () => mkdirSync(path), /it is a folder, not a file/],
    ["a pipe that nobody writes to", () => void execFileSync("mkfifo", [path]), /it is a pipe, not a file/],
    ["a device without an end", () => symlinkSync("/dev/zero", path), /it is a device or a socket/],
    ["a terminal or nothing", () => symlinkSync("/dev/null", path), /it is a device or a socket/],
    [
      "a socket",
      () => new Promise((resolve) => createServer().listen(path, resolve).unref()),
      /cannot be read/,
    ],
    ["a link to itself", () => symlinkSync(path, path), /links lead in a circle/],
    ["part of a file's path", () => symlinkSync("/dev/null/x", path), /no folder|not a directory/],
  ])("is refused at once: %s", async (_, make, message) => {
    await make();
    await expect(SafetensorsFile.open(path)).rejects.toThrow(message);
    await expect(SafetensorsFile.open(path)).rejects.toThrow(FileError);
  });
});
