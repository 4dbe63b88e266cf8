/** Every source of tensors returns the bytes of any range of any tensor, in whatever order ranges are read. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { openGgufFile } from "../../../src/checkpoints/gguf/open.js";
import { writeGguf } from "../../../src/checkpoints/gguf/writer.js";
import { encodeFrame, Frame, type FrameTensor } from "../../../src/io/frames/frame.js";
import { SafetensorsFile } from "../../../src/io/safetensors.js";
import { SafetensorsBlob } from "../../../src/io/safetensors-blob.js";
import { writeSafetensors } from "../../../src/io/safetensors-writer.js";
import { MemorySource, type TensorSource } from "../../../src/io/source.js";
import { share } from "../arbitraries/share.js";
import { draws } from "../harness/draws.js";
import { useFolder } from "./folder.js";

let folder = "";
useFolder((createdFolder) => {
  folder = createdFolder;
});

type Source = TensorSource & { readonly close?: () => Promise<void> };

async function writeFile(tensors: readonly FrameTensor[]): Promise<string> {
  const path = join(folder, "source.safetensors");
  await writeSafetensors(path, { tensors }, async (writeTensor) => {
    for (const { name, bytes } of tensors) await writeTensor(name, bytes);
  });
  return path;
}

/** The kinds of sources, and a function for each that creates it from tensors. */
const SOURCES: Readonly<Record<string, (tensors: readonly FrameTensor[]) => Promise<Source>>> = {
  "a safetensors file": async (tensors) => SafetensorsFile.open(await writeFile(tensors)),
  "a blob": async (tensors) =>
    SafetensorsBlob.open("blob", new Blob([readFileSync(await writeFile(tensors))])),
  memory: async (tensors) => new MemorySource("memory", tensors),
  "a frame": async (tensors) => {
    const [, ...chunks] = encodeFrame("frame", tensors, {});
    return Frame.decode("frame", new Uint8Array(Buffer.concat(chunks)));
  },
  "a GGUF file": async (tensors) => {
    const path = join(folder, "source.gguf");
    await writeGguf(path, { tensors, metadata: [] }, async (writeTensor) => {
      for (const { name, bytes } of tensors) await writeTensor(name, bytes);
    });
    return openGgufFile(path);
  },
};

/** Sizes around the number of bytes that are read at once: 2^14 and 2^16. */
const size = fc.oneof(
  fc.integer({ min: 1, max: 40 }),
  fc
    .constantFrom(1, 2 ** 14, 2 ** 16)
    .chain((limit) => fc.integer({ min: Math.max(1, limit - 9), max: limit + 9 })),
);

/** A range to read: the tensor, and begin and end as shares of the tensor. */
interface Range {
  readonly tensor: number;
  readonly shares: readonly [number, number];
  readonly method: "read" | "readInto" | "all";
}
const allOf = (tensor: number): Range => ({ tensor, shares: [0, 1], method: "read" });
const end = fc.oneof({ weight: 1, arbitrary: fc.constantFrom(0, 1) }, { weight: 2, arbitrary: share });
const range: fc.Arbitrary<Range> = fc.record({
  tensor: fc.nat(20),
  shares: fc.tuple(end, end),
  method: fc.constantFrom("read", "readInto", "all"),
});

/** Returns the bytes that a source reads, and the bytes of the tensor. */
async function readBy(source: Source, tensors: readonly FrameTensor[], { tensor, shares, method }: Range) {
  const { name, bytes } = tensors[tensor % tensors.length] as FrameTensor;
  const [begin, end] = shares
    .map((fraction) => Math.round(fraction * bytes.length))
    .sort((a, b) => a - b) as [number, number];
  const entry = source.entry(name);
  if (method === "all") return [await source.read(entry), bytes] as const;
  const expected = bytes.slice(begin, end);
  if (method === "read") return [await source.read(entry, begin, end), expected] as const;
  const target = new Uint8Array(end - begin);
  await source.readInto(entry, begin, target);
  return [target, expected] as const;
}

describe("ranges of tensors have their bytes", () => {
  it.each(Object.entries(SOURCES))("in %s", async (_, open) => {
    const sizes = fc.array(size, { minLength: 1, maxLength: 6 });
    const ranges = fc.array(range, { minLength: 1, maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(sizes, ranges, fc.boolean(), async (lengths, drawnRanges, isConcurrent) => {
        const tensors = lengths.map((length, i): FrameTensor => {
          const bytes = Uint8Array.from(
            { length },
            (_, offset) => (offset * 31 + (offset >> 8) * 7 + i * 101) & 255,
          );
          return { name: `t${i}`, dtype: "I8", shape: [length], bytes };
        });
        const source = await open(tensors);
        try {
          const readRange = (drawnRange: Range) => readBy(source, tensors, drawnRange);
          const pairs = isConcurrent ? await Promise.all(drawnRanges.map(readRange)) : [];
          if (!isConcurrent) for (const drawnRange of drawnRanges) pairs.push(await readRange(drawnRange));
          for (const [actual, expected] of pairs) expect(Buffer.compare(actual, expected)).toBe(0);
        } finally {
          await source.close?.();
        }
      }),
      {
        numRuns: draws(100, 12),
        // a small tensor before the last one that was read
        examples: [[[20, 20], [allOf(1), allOf(0)], false]],
      },
    );
  });
});
