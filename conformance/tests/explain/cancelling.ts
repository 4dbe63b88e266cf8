/** Products whose terms cancel and whose scales are at the limits of their format. */
import { isIntegral } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarLayout } from "../../../src/formats/scalar.js";
import { words } from "../../arbitraries/random.js";
import type { GemmCase } from "../../operations/gemm/case.js";
import { blocksOf, formatOf, multiplied, type OperandCase } from "../../operations/gemm/operand.js";
import { fromCodes } from "../../values/plain.js";

/** Codes of scales: zero, subnormal numbers, neighbours of powers of two, the largest, infinity, NaN, and set sign bits. */
const SCALES = {
  e8m0: [0, 1, 2, 126, 127, 128, 140, 253, 254, 255],
  e4m3: [0, 1, 3, 7, 8, 9, 0x37, 0x38, 0x39, 0x7e, 0x7f, 0x80, 0x88, 0xb8],
  ue5m3: [0, 1, 7, 8, 9, 0x77, 0x78, 0x79, 0xf0, 0xfe, 0xff],
  f32: [
    0, 1, 0x007fffff, 0x00800000, 0x00800001, 0x33800000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x40490fdb,
    0x7f000000, 0x7f7fffff, 0x7f800000, 0x7fc00000,
  ],
} as const;

/** The powers of two among the f32 scales, for operands whose scales are all of this kind. */
const POWERS = [
  1, 0x00200000, 0x00400000, 0x00800000, 0x33800000, 0x3f800000, 0x40800000, 0x7f000000,
] as const;

/** Distances along K between two elements that cancel: in a group, another group, another step, another chain. */
const DISTANCES = [1, 2, 8, 16, 32, 64, 128] as const;

/** The bit that negates a code; undefined for unsigned formats. */
function signBit(operand: OperandCase): number | undefined {
  const format = formatOf(operand.source);
  if (format === "f32") return 0x80000000;
  const layout: ScalarLayout = SCALAR_FORMATS[format];
  if (!layout.signed || isIntegral(layout.specials) || layout.specials === "fnuz") return undefined;
  return 2 ** (layout.exponentBits + layout.mantissaBits);
}

/** An operand whose elements repeat those at a distance before them, negated if `negates`. */
function repeatCodes(operand: OperandCase, distance: number, seed: number, negates: boolean): OperandCase {
  const [lines, depth] = operand.codes.matrix;
  const { codes, dtype, shape } = operand.codes;
  const sign = signBit(operand);
  if (sign === undefined) return operand;
  const repeatedCodes = Array.from(codes);
  const draws = words(seed, depth);
  for (let k = distance; k < depth; k++) {
    const isSecond = Math.floor(k / distance) % 2 === 1;
    if (!isSecond || (draws[k] as number) % 8 === 0) continue;
    for (let line = 0; line < lines; line++) {
      const code = repeatedCodes[line * depth + k - distance] as number;
      repeatedCodes[line * depth + k] = negates ? (code ^ sign) >>> 0 : code;
    }
  }
  return { ...operand, codes: fromCodes(dtype, shape, repeatedCodes) };
}

/** An operand with some scales at the limits of their format. With `powers`, all f32 scales are powers of two. */
function atEdges(operand: OperandCase, seed: number, powers: boolean): OperandCase {
  const { scales, source } = operand;
  const blocks = blocksOf(source);
  if (!scales || !blocks) return operand;
  const arePowers = blocks.format === "f32" && (powers || multiplied(operand).scales?.pow2 === true);
  const edges = arePowers ? POWERS : SCALES[blocks.format];
  const codes = Array.from(scales.codes, (code, i) => {
    const draw = words(seed, scales.codes.length)[i] as number;
    return draw % 3 === 0 || arePowers ? (edges[(draw >>> 8) % edges.length] as number) : code;
  });
  return { ...operand, scales: fromCodes(scales.dtype, scales.shape, codes) };
}

/** The product with cancelling terms at a distance that `seed` selects, and in every second case with extreme scales. */
export function withCancellingTerms(drawnCase: GemmCase, seed: number): GemmCase {
  const distance = DISTANCES[seed % DISTANCES.length] as number;
  // Blackwell multiplies operands with f32 scales if these are powers of two
  const withEdges = (operand: OperandCase, edge: number) =>
    (seed >>> 4) % 2 === 0 ? operand : atEdges(operand, edge, drawnCase.datapath === "blackwell");
  return {
    ...drawnCase,
    a: withEdges(repeatCodes(drawnCase.a, distance, seed, false), seed + 1),
    b: withEdges(repeatCodes(drawnCase.b, distance, seed, true), seed + 2),
  };
}
