/**
 * Under 4over6, a tile that has the same error with a maximum element of 6 and of 4 takes 6, as numerics.md §5.8 says: every spec
 * has the scales and codes of the oracle where many tiles have such ties.
 */
import { describe } from "vitest";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { words } from "../../../arbitraries/random.js";
import { specsOf } from "../../../arbitraries/specs.js";
import { assertSameAnswer } from "../../../laws/laws.js";
import { type QuantizeCase, quantizeOperation } from "../../../operations/quantize/quantize.js";
import { fromCodes } from "../../../values/plain.js";
import { bitsOf } from "../../../values/values.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const SHAPE = [16, 32] as const;

/** The values of a tile are these multiples of its amax: its elements are codes under both scales. */
const SHARES = [0, 0.25, 0.5, 1, -0.25, -0.5, -1] as const;
/** Amaxes of tiles. Under the amax 7 of the tensor, both scales of such a tile are codes. */
const AMAXES = [7, 4, 5] as const;

/** Tiles of `height` rows with these amaxes, divided by powers of two. Some tiles have one nonzero element. */
function tiesOf({ tile, fourOverSix, e4m3Max }: QuantizeSpec): readonly number[] {
  const [rows, columns] = SHAPE;
  const height = tile === "16x16" ? 16 : 1;
  const randomBits = words(e4m3Max + fourOverSix.charCodeAt(1), rows * columns);
  return Array.from(randomBits, (bits, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const block = Math.floor(row / height) * (columns / 16) + Math.floor(column / 16);
    const amax = (AMAXES[block % 3] as number) / 2 ** (block % 7);
    if (row % height === 0 && column % 16 === 5) return amax;
    return block % 5 === 4 ? 0 : amax * (SHARES[bits % SHARES.length] as number);
  });
}

const SPECS = specsOf("nvfp4")
  .filter(({ fourOverSix }) => fourOverSix !== "none")
  .map((spec) => {
    const { tile, fourOverSix, e4m3Max, rowScaled } = spec;
    return [`${tile} ${fourOverSix} ${e4m3Max}${rowScaled ? " by rows" : ""}`, spec] as const;
  });

describe("ties of errors", () => {
  for (const [name, spec] of SPECS)
    testInScope(name, () => {
      const input: QuantizeCase = {
        ...{ spec, x: fromCodes("f32", SHAPE, tiesOf(spec).map(bitsOf)) },
        ...{ usage: { rowwise: true, columnwise: true }, scaleLayout: "logical" as const },
        ...{ random: { seed: 5n, offset: 9n }, scale: 1 },
      };
      assertSameAnswer(quantizeOperation.run(backend(), input), quantizeOperation.oracle(input));
    });
});
