/** Counting NaN and infinite values by the scales of packed blocks gives the same number as counting the values. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { countNotFinite } from "../../../../src/dialects/packed/not-finite.js";
import {
  dequantizePacked,
  PACKED_LAYOUT_NAMES,
  PACKED_LAYOUTS,
} from "../../../../src/dialects/packed/packed.js";
import { draws } from "../../harness/draws.js";

/** Bytes with many exponents of all ones. */
const byte = fc.oneof(
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 255 }) },
  { weight: 1, arbitrary: fc.constantFrom(0, 0x7b, 0x7c, 0x7e, 0x7f, 0xfb, 0xfc, 0xff) },
);

it.each(PACKED_LAYOUT_NAMES)(
  "%s: the number of values that are not finite equals their number after decoding",
  (layout) => {
    const { bytes: size } = PACKED_LAYOUTS[layout];
    const blocks = fc
      .integer({ min: 0, max: 4 })
      .chain((count) => fc.array(byte, { minLength: count * size, maxLength: count * size }));
    fc.assert(
      fc.property(blocks, (drawnBlocks) => {
        const bytes = Uint8Array.from(drawnBlocks);
        const expected = dequantizePacked(bytes, layout).filter((value) => !Number.isFinite(value));
        expect(countNotFinite(bytes, layout)).toBe(expected.length);
      }),
      { numRuns: draws(60) },
    );
  },
);
