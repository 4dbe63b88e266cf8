/** Wrong readings of a weight. Each reading indicates a finding. */
import { CODE_TYPES, type CodeTypeName } from "../../stored/code-types.js";
import type { Scales } from "../../stored/scales.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import type { FindingName } from "../findings.js";
import { isExponent } from "../statistics/scale-counter.js";

/** An interpretation of scales and codes, and the finding that applies if its values match the original. */
export interface Reading {
  readonly finding?: FindingName;
  readonly what: string;
  /** The factor of all values. Default: 1. */
  readonly factor?: number;
  /** The block scales under this reading; undefined if the reading does not apply to the weight. */
  readonly scales: (scales: Scales, weight: QuantizedWeight) => Float32Array | undefined;
  /** The code type under this reading. Default: the code type of the weight. */
  readonly type?: CodeTypeName;
  /** Whether the two codes of a byte are swapped. */
  readonly swapped?: true;
}

/** The reading that the file declares. */
export const FILE_READING: Reading = { what: "", scales: ({ values }) => values };

/**
 * The FNUZ type of each OCP FP8 type, and the OCP type of each FNUZ type. The values of the other type are half or twice as
 * large.
 */
const OTHER_FP8: Readonly<Partial<Record<CodeTypeName, CodeTypeName>>> = {
  e4m3: "e4m3fnuz",
  e4m3fnuz: "e4m3",
  e5m2: "e5m2fnuz",
  e5m2fnuz: "e5m2",
};

/** The exponent bias of E8M0. */
const E8M0_BIAS = 127;

const otherFp8 = (from: CodeTypeName, description: string): Reading => ({
  finding: "codes-fnuz",
  what: description,
  type: OTHER_FP8[from] ?? from,
  scales: ({ values }, { type }) => (type === from ? values : undefined),
});

/** All misreadings except a constant factor, which `factorReading` covers. */
export const READINGS: readonly Reading[] = [
  otherFp8("e4m3", "read as e4m3fnuz, the codes are those of the original"),
  otherFp8("e5m2", "read as e5m2fnuz, the codes are those of the original"),
  otherFp8("e4m3fnuz", "read as e4m3fn, the codes are those of the original"),
  otherFp8("e5m2fnuz", "read as e5m2, the codes are those of the original"),
  {
    finding: "scale-encoded",
    what: "as bytes of E8M0, the scales give the original",
    scales: ({ values }) =>
      values.length > 0 && values.every(isExponent)
        ? values.map((byte) => 2 ** (byte - E8M0_BIAS))
        : undefined,
  },
  {
    finding: "scale-inverted",
    what: "reciprocal scales give the original",
    scales: ({ values }) => values.map((value) => 1 / value),
  },
  {
    finding: "nibbles-swapped",
    what: "with the codes of a byte exchanged, these are the values of the original",
    scales: ({ values }, { type }) => (CODE_TYPES[type].bits === 4 ? values : undefined),
    swapped: true,
  },
  {
    finding: "scales-swizzled",
    what: "scales in the other order give the original",
    scales: ({ oppositeLayout }) => oppositeLayout,
  },
  {
    finding: "scale-axis",
    what: "transposed scales give the original",
    scales: ({ values }, { geometry: { grid, kind } }) =>
      grid[0] === grid[1] && grid[0] > 1 && kind !== "whole" ? transposed(values, grid[0]) : undefined,
  },
];

/** The reading in which all values are multiplied by a factor. */
export function factorReading(factor: number): Reading {
  const power = 2 ** Math.round(Math.log2(factor));
  const multiplier = Math.abs(factor / power - 1) < 0.02 ? power : factor;
  return {
    finding: "scale-factor",
    what: `${Number(multiplier.toPrecision(4))} times these values are those of the original`,
    factor: multiplier,
    scales: ({ values }) =>
      Number.isFinite(multiplier) && multiplier > 0 && Math.abs(multiplier - 1) > 0.02 ? values : undefined,
  };
}

function transposed(values: Float32Array, size: number): Float32Array {
  const area = size * size;
  return values.map((_, index) => {
    const indexInMatrix = index % area;
    return (
      values[index - indexInMatrix + (indexInMatrix % size) * size + Math.floor(indexInMatrix / size)] ?? 0
    );
  });
}
