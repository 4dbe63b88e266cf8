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

interface Recorded {
  readonly layout: string;
  readonly elements: number;
  readonly bytes: number;
  readonly blocks: number;
  readonly inputs: string;
  readonly values: Readonly<Partial<Record<"ggml" | "gguf", string>>>;
}
const RECORD: {
  readonly origin: Readonly<Record<string, string>>;
  readonly layouts: readonly Recorded[];
} = JSON.parse(readFileSync(new URL("../../vectors/packed-layouts.json", import.meta.url), "utf8"));

const BLOCKS = 4096;
const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** The blocks that scripts/witness/packed_layouts.py draws. */
function drawn(index: number, size: number): Uint8Array {
  const free = Uint8Array.from({ length: BLOCKS * size }, (_, i) => {
    let h = (Math.imul(i, 2654435761 | 0) + Math.imul(index + 1, 2654419969 | 0)) >>> 0;
    h = Math.imul(h ^ (h >>> 15), 2246822519 | 0) >>> 0;
    return ((h ^ (h >>> 13)) >>> 11) & 255;
  });
  const all = new Uint8Array((BLOCKS + 256 * size) * size);
  all.set(free);
  for (let byte = 0; byte < size; byte++)
    for (let value = 0; value < 256; value++) {
      const at = (BLOCKS + byte * 256 + value) * size;
      all.set(free.subarray(byte * size, (byte + 1) * size), at);
      all[at + byte] = value;
    }
  return all;
}

/** The digest of the bits of values, every NaN as the canonical one. */
function digest(values: Float32Array): string {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length).slice();
  values.forEach((value, i) => {
    if (Number.isNaN(value)) words[i] = 0x7fc00000;
  });
  return sha256(new Uint8Array(words.buffer));
}

it("there are the 27 layouts of the standard, with its sizes, and the libraries that decoded them", () => {
  expect(RECORD.layouts.map(({ layout }) => `gguf:${layout}`)).toEqual(PACKED_LAYOUT_NAMES);
  expect(PACKED_LAYOUT_NAMES).toHaveLength(27);
  for (const { layout: name, elements, bytes } of RECORD.layouts)
    expect([name, PACKED_LAYOUTS[`gguf:${name}` as "gguf:q4_0"]]).toEqual([name, { elements, bytes }]);
  expect(RECORD.origin.version).toMatch(/libggml-python 0\.20\.2\.post1, gguf 0\.19\.0/);
  const by = (library: "ggml" | "gguf") =>
    RECORD.layouts.filter(({ values }) => values[library] === undefined).map(({ layout }) => layout);
  expect(by("ggml")).toEqual(["q8_1"]);
  expect(by("gguf")).toEqual(["q8_1", "q8_k", "q1_0", "q2_0"]);
});

describe.each(sampleCases(RECORD.layouts, 8))(
  "gguf:$layout",
  ({ layout: name, bytes, blocks, inputs, values }) => {
    const layout = PACKED_LAYOUT_NAMES.find((each) => each === `gguf:${name}`);
    if (!layout) throw new Error(`${name} is a layout`);
    const { elements } = PACKED_LAYOUTS[layout];

    it("has the values of the libraries for drawn blocks, and for every value of every byte", () => {
      const raw = drawn(
        RECORD.layouts.findIndex(({ layout: each }) => each === name),
        bytes,
      );
      expect([raw.length, sha256(raw)]).toEqual([blocks * bytes, inputs]);
      const actual = digest(dequantizePacked(raw, layout));
      for (const [library, theirs] of Object.entries(values))
        expect([library, actual]).toEqual([library, theirs]);
    });

    it("decodes each block by itself, wherever it lies, and takes whole blocks only", () => {
      const block = fc.uint8Array({ minLength: bytes, maxLength: bytes });
      fc.assert(
        fc.property(fc.array(block, { maxLength: 4 }), fc.nat(3), (list, offset) => {
          const room = new Uint8Array(offset + list.length * bytes);
          list.forEach((each, i) => {
            room.set(each, offset + i * bytes);
          });
          const all = dequantizePacked(room.subarray(offset), layout);
          expect(all.length).toBe(list.length * elements);
          list.forEach((each, i) => {
            expect(digest(all.slice(i * elements, (i + 1) * elements))).toBe(
              digest(dequantizePacked(each, layout)),
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
    fc.property(fc.uint8Array({ minLength: 36, maxLength: 36 }), (raw) => {
      const scale = valueOfCode("f16", (raw[0] ?? 0) | ((raw[1] ?? 0) << 8));
      const expected = Float32Array.from(raw.subarray(4), (byte) => scale * ((byte << 24) >> 24));
      expect(digest(dequantizePacked(raw, "gguf:q8_1"))).toBe(digest(expected));
    }),
  ));

it("an unknown layout and bytes that are no Uint8Array are refused", () => {
  for (const name of ["gguf:q4_2", "q4_0", "gguf:Q4_0", "", "toString", 3, null] as unknown[])
    expect(() => dequantizePacked(new Uint8Array(0), name as "gguf:q4_0")).toThrow(ArgumentError);
  for (const bytes of [[1], "x", new Int8Array(18), null] as unknown[])
    expect(() => dequantizePacked(bytes as Uint8Array, "gguf:q4_0")).toThrow(ArgumentError);
});
