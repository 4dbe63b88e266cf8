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
  .filter(
    (frameTensor) =>
      Number.isInteger(fileBytes(frameTensor.dtype, frameTensor.shape)) &&
      frameTensor.name !== "__metadata__",
  )
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

function concatenateBytes(chunks: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(chunks));
}

/** Yields `bytes` in pieces whose lengths repeat `lengths`. */
async function* inPieces(bytes: Uint8Array, lengths: readonly number[]): AsyncGenerator<Uint8Array> {
  for (let offset = 0, i = 0; offset < bytes.length; i++) {
    const length = lengths[i % lengths.length] ?? 1;
    yield bytes.subarray(offset, offset + length);
    offset += length;
  }
}

async function framesOf(bytes: Uint8Array, lengths: readonly number[]): Promise<Uint8Array[]> {
  const reader = new FrameReader("test", inPieces(bytes, lengths));
  const frames: Uint8Array[] = [];
  for (let frame = await reader.next(); frame; frame = await reader.next()) frames.push(frame);
  return frames;
}

describe("frames", () => {
  it("are decoded to the encoded tensors and metadata, from pieces of any length", async () => {
    const pieces = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(fc.array(contents, { maxLength: 3 }), pieces, async (frameContents, lengths) => {
        const stream = concatenateBytes(
          frameContents.flatMap(({ tensors, metadata }) => encodeFrame("test", tensors, metadata)),
        );
        const frames = await framesOf(stream, lengths);
        expect(frames.length).toBe(frameContents.length);
        for (const [i, { tensors, metadata }] of frameContents.entries()) {
          const frame = Frame.decode("test", frames[i] as Uint8Array);
          expect(frame.metadata).toEqual(metadata);
          expect([...frame.tensors.keys()].sort()).toEqual(tensors.map(({ name }) => name).sort());
          for (const frameTensor of tensors) {
            const entry = frame.entry(frameTensor.name);
            expect({ dtype: entry.dtype, shape: entry.shape }).toEqual({
              dtype: frameTensor.dtype,
              shape: frameTensor.shape,
            });
            expect(await frame.read(entry)).toEqual(frameTensor.bytes);
          }
        }
      }),
    );
  });

  it("end with an error where the stream ends within one", async () => {
    const tensors = [{ name: "x", dtype: "F32", shape: [2], bytes: new Uint8Array(8) }] as const;
    const frameBytes = concatenateBytes(encodeFrame("test", tensors, {}));
    for (let end = 1; end < frameBytes.length; end++)
      await expect(framesOf(frameBytes.subarray(0, end), [5])).rejects.toThrow(FileError);
    expect(await framesOf(frameBytes, [5])).toHaveLength(1);
    expect(await framesOf(new Uint8Array(), [5])).toEqual([]);
  });

  it("allocate no more than has come, whatever length is promised", async () => {
    for (const length of [MAX_FRAME_BYTES, 2 ** 31]) {
      const prefix = new Uint8Array(9);
      new DataView(prefix.buffer).setBigUint64(0, BigInt(length), true);
      const memoryBefore = process.memoryUsage().arrayBuffers;
      await expect(framesOf(prefix, [9])).rejects.toThrow(/ended after 1 of the \d+ bytes of a frame/);
      expect(process.memoryUsage().arrayBuffers - memoryBefore).toBeLessThan(2 ** 28);
    }
    const prefix = new Uint8Array(8).fill(255);
    await expect(framesOf(prefix, [8])).rejects.toThrow(/does it begin with its length/);
  });

  it("refuse changed bytes with FileError, or give what the header says", () => {
    const tensors = [
      { name: "x", dtype: "F32", shape: [2], bytes: new Uint8Array(8) },
      { name: "y", dtype: "U8", shape: [3], bytes: new Uint8Array(3) },
    ] as const;
    const [, ...chunks] = encodeFrame("test", tensors, { key: "value" });
    const frameBytes = concatenateBytes(chunks);
    const byteChange = fc.tuple(fc.nat({ max: frameBytes.length - 1 }), fc.integer({ min: 0, max: 255 }));
    fc.assert(
      fc.property(
        fc.array(byteChange, { minLength: 1, maxLength: 3 }),
        fc.nat({ max: frameBytes.length }),
        (byteChanges, end) => {
          const bytes = frameBytes.slice(0, end || frameBytes.length);
          for (const [position, value] of byteChanges) bytes[position] = value;
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
        const under = ({ tensors, metadata }: typeof a, path: string) => ({
          tensors: tensors.map((frameTensor) => ({ ...frameTensor, name: `${path}/${frameTensor.name}` })),
          metadata: Object.fromEntries(
            Object.entries(metadata).map(([key, value]) => [`${path}/${key}`, value]),
          ),
        });
        const [first, second] = [under(a, "a"), under(b, "b/c")];
        const [, ...chunks] = encodeFrame("test", [...first.tensors, ...second.tensors], {
          ...first.metadata,
          ...second.metadata,
        });
        const frame = Frame.decode("test", concatenateBytes(chunks));
        for (const [path, ownContents] of [
          ["a", a],
          ["b/c", b],
        ] as const) {
          if (ownContents.tensors.length === 0) {
            expect(() => frame.part(path)).toThrow(/no tensor has a name that begins with/);
            continue;
          }
          const file = frame.part(path);
          expect(file.metadata).toEqual(ownContents.metadata);
          expect(file.tensors.size).toBe(ownContents.tensors.length);
          for (const frameTensor of ownContents.tensors) {
            const entry = file.entry(frameTensor.name);
            expect(elementCount(entry.shape)).toBe(elementCount(frameTensor.shape));
            expect(await file.read(entry)).toEqual(frameTensor.bytes);
          }
        }
      }),
    );
  });
});
