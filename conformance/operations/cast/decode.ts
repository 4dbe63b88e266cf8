/** decode: codes to wide values. */
import * as fc from "fast-check";
import { derive } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "../../../src/formats/scalar.js";
import { decode } from "../../../src/ops/cast/cast.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { format } from "../../arbitraries/formats.js";
import { words } from "../../arbitraries/random.js";
import { wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/core/scalar.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { bitsOf, layoutOf, storageBitsOf } from "../../values/values.js";
import type { Operation } from "../operation.js";
import { stored } from "./encode.js";

/** A call of `decode`: values = the values of the codes, rounded to `dtype`. */
export interface DecodeCase {
  /** A tensor of the format's storage type: u8 (two 4-bit codes per byte), u16 or u32. */
  readonly codes: PlainTensor;
  /** The format of the codes. */
  readonly format: ScalarFormat | ScalarLayout;
  /** The type of the values. */
  readonly dtype: WideDType;
}

/** All codes of a narrow format in order (seed 0), or pseudorandom codes. */
function someCodes(layout: ScalarLayout, seed: number, count: number): number[] {
  const { bits } = derive(layout);
  return Array.from(words(seed, count), (word, i) => (seed === 0 ? i : word) % 2 ** bits);
}

/** `count` codes of one of the formats; an even number for formats that store two codes per byte. */
export function decodeCase(
  from: fc.Arbitrary<ScalarFormat | ScalarLayout> = format(),
  counts = fc.oneof(fc.integer({ min: 0, max: 40 }), fc.constant(256)),
): fc.Arbitrary<DecodeCase> {
  return fc
    .record({
      format: from,
      seed: fc.nat(),
      count: counts,
      dtype: wideType(),
    } as const)
    .map(({ format: source, seed, count, dtype }) => {
      const even = storageBitsOf(source) === 4 ? count - (count % 2) : count;
      const codes = stored(someCodes(layoutOf(source), seed, even), source, [even]);
      return { codes, format: source, dtype };
    });
}

export const decodeOperation: Operation<DecodeCase> = {
  arbitrary: decodeCase(),
  run(backend, { codes, format: from, dtype }) {
    return { values: download(decode(upload(backend, codes), { format: layoutOf(from), dtype })) };
  },
  oracle({ codes, format: from, dtype }) {
    const layout = layoutOf(from);
    const packed = storageBitsOf(from) === 4;
    const each = packed
      ? Array.from(codes.codes).flatMap((byte) => [byte & 15, byte >> 4])
      : Array.from(codes.codes);
    const values = each.map((code) => {
      const value = bitsOf(oracle.decode(code % 2 ** derive(layout).bits, layout));
      return dtype === "f32" ? value : oracle.encode(value, SCALAR_FORMATS[dtype], "tiesToEven", "nonfinite");
    });
    return { values: fromCodes(dtype, packed ? [2 * codes.data.length] : codes.shape, values) };
  },
};
