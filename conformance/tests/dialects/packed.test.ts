/** Packed layouts are decoded as ggml and gguf-py decode them, bit for bit, and by the documented formulas. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  dequantizePacked,
  PACKED_LAYOUT_NAMES,
  PACKED_LAYOUTS,
} from "../../../src/dialects/packed/packed.js";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import { valueOfCode } from "../../../src/formats/derive.js";
import { draws, sampleCases } from "../harness/draws.js";

interface RecordedLayout {
  readonly layout: string;
  readonly elements: number;
  readonly bytes: number;
  readonly blocks: number;
  readonly inputs: string;
  readonly values: Readonly<Partial<Record<"ggml" | "gguf", string>>>;
}
const RECORD: {
  readonly origin: Readonly<Record<string, string>>;
  readonly layouts: readonly RecordedLayout[];
} = JSON.parse(readFileSync(new URL("../../vectors/packed-layouts.json", import.meta.url), "utf8"));

const BLOCKS = 4096;
const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** The blocks that scripts/witness/packed_layouts.py draws. */
function drawBlocks(index: number, size: number): Uint8Array {
  const randomBytes = Uint8Array.from({ length: BLOCKS * size }, (_, i) => {
    let hash = (Math.imul(i, 2654435761 | 0) + Math.imul(index + 1, 2654419969 | 0)) >>> 0;
    hash = Math.imul(hash ^ (hash >>> 15), 2246822519 | 0) >>> 0;
    return ((hash ^ (hash >>> 13)) >>> 11) & 255;
  });
  const bytes = new Uint8Array((BLOCKS + 256 * size) * size);
  bytes.set(randomBytes);
  for (let byte = 0; byte < size; byte++)
    for (let value = 0; value < 256; value++) {
      const offset = (BLOCKS + byte * 256 + value) * size;
      bytes.set(randomBytes.subarray(byte * size, (byte + 1) * size), offset);
      bytes[offset + byte] = value;
    }
  return bytes;
}

/** The digest of the bits of values, every NaN as the canonical one. */
function digest(values: Float32Array): string {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length).slice();
  values.forEach((value, i) => {
    if (Number.isNaN(value)) bits[i] = 0x7fc00000;
  });
  return sha256(new Uint8Array(bits.buffer));
}

it("there are the 27 layouts of the standard, with its sizes, and the libraries that decoded them", () => {
  expect(RECORD.layouts.map(({ layout }) => `gguf:${layout}`)).toEqual(PACKED_LAYOUT_NAMES);
  expect(PACKED_LAYOUT_NAMES).toHaveLength(27);
  for (const { layout: name, elements, bytes } of RECORD.layouts)
    expect([name, PACKED_LAYOUTS[`gguf:${name}` as "gguf:q4_0"]]).toEqual([name, { elements, bytes }]);
  expect(RECORD.origin.version).toMatch(/libggml-python 0\.20\.2\.post1, gguf 0\.19\.0/);
  const layoutsWithout = (library: "ggml" | "gguf") =>
    RECORD.layouts.filter(({ values }) => values[library] === undefined).map(({ layout }) => layout);
  expect(layoutsWithout("ggml")).toEqual(["q8_1"]);
  expect(layoutsWithout("gguf")).toEqual(["q8_1", "q8_k", "q1_0", "q2_0"]);
});

describe.each(sampleCases(RECORD.layouts, 8))(
  "gguf:$layout",
  ({ layout: name, bytes, blocks, inputs, values }) => {
    const layout = PACKED_LAYOUT_NAMES.find((layoutName) => layoutName === `gguf:${name}`);
    if (!layout) throw new Error(`${name} is a layout`);
    const { elements } = PACKED_LAYOUTS[layout];

    it("has the values of the libraries for drawn blocks, and for every value of every byte", () => {
      const blockBytes = drawBlocks(
        RECORD.layouts.findIndex(({ layout: layoutName }) => layoutName === name),
        bytes,
      );
      expect([blockBytes.length, sha256(blockBytes)]).toEqual([blocks * bytes, inputs]);
      const actual = digest(dequantizePacked(blockBytes, layout));
      for (const [library, expectedDigest] of Object.entries(values))
        expect([library, actual]).toEqual([library, expectedDigest]);
    });

    it("decodes each block by itself, wherever it lies, and takes whole blocks only", () => {
      const block = fc.uint8Array({ minLength: bytes, maxLength: bytes });
      fc.assert(
        fc.property(fc.array(block, { maxLength: 4 }), fc.nat(3), (blockList, offset) => {
          const room = new Uint8Array(offset + blockList.length * bytes);
          blockList.forEach((blockBytes, i) => {
            room.set(blockBytes, offset + i * bytes);
          });
          const allValues = dequantizePacked(room.subarray(offset), layout);
          expect(allValues.length).toBe(blockList.length * elements);
          blockList.forEach((blockBytes, i) => {
            expect(digest(allValues.slice(i * elements, (i + 1) * elements))).toBe(
              digest(dequantizePacked(blockBytes, layout)),
            );
          });
        }),
        { numRuns: draws(30) },
      );
      for (const length of [1, bytes - 1, bytes + 1])
        expect(() => dequantizePacked(new Uint8Array(length), layout)).toThrow(ShapeError);
    });
  },
);

it("Q8_1, which no library dequantizes, is its bytes times its scale, and its sum is not read", () =>
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 36, maxLength: 36 }), (blockBytes) => {
      const scale = valueOfCode("f16", (blockBytes[0] ?? 0) | ((blockBytes[1] ?? 0) << 8));
      const expected = Float32Array.from(blockBytes.subarray(4), (byte) => scale * ((byte << 24) >> 24));
      expect(digest(dequantizePacked(blockBytes, "gguf:q8_1"))).toBe(digest(expected));
    }),
  ));

/** The value of ggml's unsigned e4m3 scale: it ignores bit 7, reads 0x7F as 0, and has no other special code. */
function unsignedE4m3(byte: number): number {
  if (byte === 0x7f) return 0;
  const [exponent, fraction] = [(byte >>> 3) & 15, byte & 7];
  return exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7);
}

it.each([
  ["gguf:nvfp4", 4, 16, unsignedE4m3],
  ["gguf:mxfp4", 1, 32, (byte: number) => 2 ** (byte - 127)],
] as const)(
  "%s: every code under every scale byte, at every position, is their product",
  (layout, parts, width, scaleOf) => {
    const { bytes } = PACKED_LAYOUTS[layout];
    for (let scale = 0; scale < 256; scale++)
      for (let code = 0; code < 16; code++) {
        const raw = new Uint8Array(bytes).fill(code | (code << 4)).fill(scale, 0, parts);
        // code 8 is +0
        const value = Math.fround(scaleOf(scale) * (code === 8 ? 0 : valueOfCode("e2m1", code)));
        expect([scale, code, ...dequantizePacked(raw, layout)]).toEqual([
          ...[scale, code],
          ...new Array<number>(parts * width).fill(value),
        ]);
      }
  },
);

it("an unknown layout and bytes that are no Uint8Array are refused", () => {
  for (const name of ["gguf:q4_2", "q4_0", "gguf:Q4_0", "", "toString", 3, null] as unknown[])
    expect(() => dequantizePacked(new Uint8Array(0), name as "gguf:q4_0")).toThrow(ArgumentError);
  for (const bytes of [[1], "x", new Int8Array(18), null] as unknown[])
    expect(() => dequantizePacked(bytes as Uint8Array, "gguf:q4_0")).toThrow(ArgumentError);
});
