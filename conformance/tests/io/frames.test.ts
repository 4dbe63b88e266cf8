/** Frames: decoding inverts encoding, however the bytes are divided; anything else is a typed error that allocates little. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FileError } from "../../../src/errors.js";
import { FILE_DTYPES, type FileDType, fileBytes } from "../../../src/io/dtypes.js";
import { encodeFrame, Frame, type FrameTensor } from "../../../src/io/frames/frame.js";
import { FrameReader, MAX_FRAME_BYTES } from "../../../src/io/frames/frame-reader.js";
import { elementCount } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { draws } from "../harness/draws.js";

const shape = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 3 });
const dtype = fc.constantFrom(...(Object.keys(FILE_DTYPES) as FileDType[]));
const tensor = fc
  .record({ name: fc.string({ maxLength: 8 }), dtype, shape, seed: fc.nat() })
  .filter((each) => Number.isInteger(fileBytes(each.dtype, each.shape)) && each.name !== "__metadata__")
  .map(
    ({ seed, ...plan }): FrameTensor => ({
      ...plan,
      bytes: Uint8Array.from(words(seed, fileBytes(plan.dtype, plan.shape))),
    }),
  );
const contents = fc.record({
  tensors: fc.uniqueArray(tensor, { selector: ({ name }) => name, maxLength: 4 }),
  metadata: fc.dictionary(fc.string({ maxLength: 8 }), fc.string({ maxLength: 20 }), {
    maxKeys: 3,
    noNullPrototype: true,
  }),
});

function joined(parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

/** Yields `bytes` in pieces whose lengths repeat `lengths`. */
async function* inPieces(bytes: Uint8Array, lengths: readonly number[]): AsyncGenerator<Uint8Array> {
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const length = lengths[i % lengths.length] ?? 1;
    yield bytes.subarray(at, at + length);
    at += length;
  }
}

async function framesOf(bytes: Uint8Array, lengths: readonly number[]): Promise<Uint8Array[]> {
  const reader = new FrameReader("test", inPieces(bytes, lengths));
  const frames: Uint8Array[] = [];
  for (let each = await reader.next(); each; each = await reader.next()) frames.push(each);
  return frames;
}

describe("frames", () => {
  it("are decoded to the encoded tensors and metadata, from pieces of any length", async () => {
    const pieces = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(fc.array(contents, { maxLength: 3 }), pieces, async (all, lengths) => {
        const stream = joined(all.flatMap(({ tensors, metadata }) => encodeFrame("test", tensors, metadata)));
        const frames = await framesOf(stream, lengths);
        expect(frames.length).toBe(all.length);
        for (const [i, { tensors, metadata }] of all.entries()) {
          const frame = Frame.decode("test", frames[i] as Uint8Array);
          expect(frame.metadata).toEqual(metadata);
          expect([...frame.tensors.keys()].sort()).toEqual(tensors.map(({ name }) => name).sort());
          for (const each of tensors) {
            const entry = frame.entry(each.name);
            expect({ dtype: entry.dtype, shape: entry.shape }).toEqual({
              dtype: each.dtype,
              shape: each.shape,
            });
            expect(await frame.read(entry)).toEqual(each.bytes);
          }
        }
      }),
    );
  });

  it("end with an error where the stream ends within one", async () => {
    const tensors = [{ name: "x", dtype: "F32", shape: [2], bytes: new Uint8Array(8) }] as const;
    const whole = joined(encodeFrame("test", tensors, {}));
    for (let end = 1; end < whole.length; end++)
      await expect(framesOf(whole.subarray(0, end), [5])).rejects.toThrow(FileError);
    expect(await framesOf(whole, [5])).toHaveLength(1);
    expect(await framesOf(new Uint8Array(), [5])).toEqual([]);
  });

  it("allocate no more than has come, whatever length is promised", async () => {
    for (const length of [MAX_FRAME_BYTES, 2 ** 31]) {
      const prefix = new Uint8Array(9);
      new DataView(prefix.buffer).setBigUint64(0, BigInt(length), true);
      const before = process.memoryUsage().arrayBuffers;
      await expect(framesOf(prefix, [9])).rejects.toThrow(/ended after 1 of the \d+ bytes of a frame/);
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(2 ** 28);
    }
    const prefix = new Uint8Array(8).fill(255);
    await expect(framesOf(prefix, [8])).rejects.toThrow(/does it begin with its length/);
  });

  it("refuse changed bytes with FileError, or give what the header says", () => {
    const tensors = [
      { name: "x", dtype: "F32", shape: [2], bytes: new Uint8Array(8) },
      { name: "y", dtype: "U8", shape: [3], bytes: new Uint8Array(3) },
    ] as const;
    const [, ...parts] = encodeFrame("test", tensors, { key: "value" });
    const whole = joined(parts);
    const change = fc.tuple(fc.nat({ max: whole.length - 1 }), fc.integer({ min: 0, max: 255 }));
    fc.assert(
      fc.property(
        fc.array(change, { minLength: 1, maxLength: 3 }),
        fc.nat({ max: whole.length }),
        (changes, end) => {
          const bytes = whole.slice(0, end || whole.length);
          for (const [at, value] of changes) bytes[at] = value;
          try {
            const frame = Frame.decode("test", bytes);
            for (const entry of frame.tensors.values())
              expect(frame.bytesOf(entry).length).toBe(fileBytes(entry.dtype, entry.shape));
          } catch (error) {
            expect(error).toBeInstanceOf(FileError);
          }
        },
      ),
      { numRuns: draws(2000) },
    );
  });

  it("hold files: the tensors and metadata below a name", async () => {
    await fc.assert(
      fc.asyncProperty(contents, contents, async (a, b) => {
        const below = ({ tensors, metadata }: typeof a, path: string) => ({
          tensors: tensors.map((each) => ({ ...each, name: `${path}/${each.name}` })),
          metadata: Object.fromEntries(
            Object.entries(metadata).map(([key, value]) => [`${path}/${key}`, value]),
          ),
        });
        const [left, right] = [below(a, "a"), below(b, "b/c")];
        const [, ...parts] = encodeFrame("test", [...left.tensors, ...right.tensors], {
          ...left.metadata,
          ...right.metadata,
        });
        const frame = Frame.decode("test", joined(parts));
        for (const [path, own] of [
          ["a", a],
          ["b/c", b],
        ] as const) {
          if (own.tensors.length === 0) {
            expect(() => frame.part(path)).toThrow(/no tensor has a name that begins with/);
            continue;
          }
          const file = frame.part(path);
          expect(file.metadata).toEqual(own.metadata);
          expect(file.tensors.size).toBe(own.tensors.length);
          for (const each of own.tensors) {
            const entry = file.entry(each.name);
            expect(elementCount(entry.shape)).toBe(elementCount(each.shape));
            expect(await file.read(entry)).toEqual(each.bytes);
          }
        }
      }),
    );
  });
});
