/** The overflow policy `propagate`: finite values and NaN as under `saturate`, infinities as under `nonfinite`. */
import { describe, expect } from "vitest";
import { SCALAR_FORMAT_NAMES } from "../../../../src/formats/derive.js";
import { encode, ROUNDINGS } from "../../../../src/ops/cast/cast.js";
import { tensor } from "../../../../src/ops/create.js";
import { sampleCases } from "../../harness/draws.js";
import { testInScope, useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const INFINITIES = [0x7f80, 0xff80];

/** Values of bf16, infinities included, and each with its lower f32 bits set. All values in a full run. */
const VALUES = [...new Set([...INFINITIES, ...sampleCases([...new Array(1 << 16).keys()])])];
const PATTERNS = Uint32Array.from(VALUES.flatMap((bits) => [bits << 16, (bits << 16) | 0xffff]));

describe.each(SCALAR_FORMAT_NAMES)("%s", (format) => {
  testInScope("saturates finite values and propagates infinities, with every rounding", () => {
    const x = tensor(backend(), new Float32Array(PATTERNS.buffer), [PATTERNS.length / 2, 2]);
    for (const rounding of ROUNDINGS) {
      const encodeUnder = (overflow: "saturate" | "nonfinite" | "propagate"): string[] => {
        const codes = encode(x, { format, rounding, overflow, seed: 3n }).dataSync() as Uint8Array;
        const perRow = codes.length / (PATTERNS.length / 2);
        return Array.from({ length: PATTERNS.length / 2 }, (_, row) =>
          codes.subarray(row * perRow, (row + 1) * perRow).join(),
        );
      };
      const [saturated, nonfinite, propagated] = [
        encodeUnder("saturate"),
        encodeUnder("nonfinite"),
        encodeUnder("propagate"),
      ];
      // a row is a bf16 value and that value with all lower bits, NaN for an infinity
      const wrongIndex = propagated.findIndex(
        (codes, row) => codes !== (INFINITIES.includes(VALUES[row] as number) ? nonfinite : saturated)[row],
      );
      expect(wrongIndex, rounding).toBe(-1);
    }
  });
});
