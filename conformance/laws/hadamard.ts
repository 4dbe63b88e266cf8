/** Laws of the random Hadamard transform, stated with its matrix. */
import * as fc from "fast-check";
import { RHT_SIGNS } from "../../src/ops/quantize/hadamard.js";
import { MismatchError } from "../values/difference.js";
import { fromCodes, wideValues } from "../values/plain.js";
import { type Law, law } from "./law.js";

const ONE = 0x3f80;

/** numerics.md §5.5: y = x diag(d) H / 4, signs first, H[r][c] = (-1)^popcount(r & c). */
const unitVector = law(
  { name: "a unit vector transforms into its row of diag(d) H / 4", operation: "hadamard" },
  fc.record({ row: fc.integer({ min: 0, max: 15 }), signs: fc.constantFrom(0, RHT_SIGNS) } as const),
  async (subject, { row, signs }) => {
    const x = fromCodes(
      "bf16",
      [16, 1],
      Array.from({ length: 16 }, (_, i) => (i === row ? ONE : 0)),
    );
    const answer = await subject.hadamard?.({ x, signs });
    if (!answer?.out) return;
    const flipped = ((signs >> row) & 1) === 1;
    wideValues(fromCodes("bf16", [1, 16], answer.out.codes)).forEach((y, column) => {
      const odd = [...(row & column).toString(2)].filter((bit) => bit === "1").length % 2 === 1;
      const expected = odd !== flipped ? -0.25 : 0.25;
      if (y !== expected)
        throw new MismatchError(`unit vector ${row} gave ${y} in column ${column}, not ${expected}`);
    });
  },
);

export const HADAMARD_LAWS: readonly Law[] = [unitVector];
