/** Arbitraries of operands that stress accumulators: wide exponents, zeros, cancellation, specials. */
import fc from "fast-check";
import { factsOf } from "../../../src/formats/derive.js";
import type { BlockScales, Codes } from "./kernel.js";

/** mulberry32, a reproducible stream of u32. fast-check draws only its seed, not each of thousands of codes. */
function stream(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
}

const FLAVOURS = ["uniform", "narrow", "small", "sparse", "cancelling", "wild"] as const;
type Flavour = (typeof FLAVOURS)[number];

/** The number of bits of the exponent and mantissa fields together, and of the mantissa alone. */
function fieldsOf(format: Codes["format"]): readonly [bits: number, mantissa: number] {
  if (format === "f32") return [32, 23];
  const { bits, word } = factsOf(format);
  return [bits, (word >>> 4) & 15];
}

function codeOf(format: Codes["format"], flavour: Flavour, next: () => number): number {
  const [bits, mantissa] = fieldsOf(format);
  const sign = bits === 32 ? 0x80000000 : 1 << (bits - 1);
  const magnitude = next() % sign;
  const signBit = next() & 1 ? sign : 0;
  const exponents = bits - 1 - mantissa;
  const middle = 2 ** (exponents - 1) * 2 ** mantissa;
  const finite = flavour === "wild" && next() % 16 === 0 ? magnitude : Math.min(magnitude, largest(format));
  if (flavour === "narrow")
    return signBit + Math.min(largest(format), middle + (magnitude % 2 ** (mantissa + 2)));
  if (flavour === "small") return signBit + (magnitude % 2 ** (mantissa + 2));
  if (flavour === "sparse" && next() % 4 !== 0) return signBit;
  return signBit + finite;
}

function largest(format: Codes["format"]): number {
  return format === "f32" ? 0x7f7fffff : factsOf(format).maxCode;
}

/** `lines` x `depth` codes from a seed. */
export function codesOf(
  format: Codes["format"],
  lines: number,
  depth: number,
  seed: number,
  flavour: Flavour = "uniform",
): Codes {
  const next = stream(seed);
  const [bits] = fieldsOf(format);
  const sign = bits === 32 ? 0x80000000 : 1 << (bits - 1);
  const codeLines = Array.from({ length: lines }, () =>
    Array.from({ length: depth }, () => codeOf(format, flavour, next)),
  );
  if (flavour !== "cancelling") return { format, lines: codeLines };
  const flip = (code: number): number => (code >= sign ? code - sign : code + sign);
  return {
    format,
    lines: codeLines.map((line) => line.map((code, k) => (k % 3 === 2 ? flip(line[k - 1] as number) : code))),
  };
}

/** X and W of the same K, each in one of `formats`. */
export function operands(
  formats: readonly Codes["format"][],
  most: { readonly lines: number; readonly depth: number },
): fc.Arbitrary<[x: Codes, w: Codes, depth: number]> {
  const side = fc.record({
    format: fc.constantFrom(...formats),
    lines: fc.integer({ min: 1, max: most.lines }),
    seed: fc.integer({ min: 0, max: 0x7fffffff }),
    flavour: fc.constantFrom(...FLAVOURS),
  });
  return fc
    .tuple(side, side, fc.integer({ min: 0, max: most.depth }))
    .map(([x, w, depth]) => [
      codesOf(x.format, x.lines, depth, x.seed, x.flavour),
      codesOf(w.format, w.lines, depth, w.seed, w.flavour === "cancelling" ? "uniform" : w.flavour),
      depth,
    ]);
}

/** Scales of an operand: mostly near one, sometimes any code of the scale format. */
export function scalesOf(
  { lines }: Codes,
  depth: number,
  format: BlockScales["format"],
  block: number,
  rowShift = 0,
): fc.Arbitrary<BlockScales> {
  const code = {
    f32: fc.oneof(
      { weight: 6, arbitrary: fc.integer({ min: 0x3e000000, max: 0x41000000 }) },
      { weight: 1, arbitrary: fc.integer({ min: 0, max: 0x7f7fffff }) },
    ),
    e8m0: fc.oneof(
      { weight: 6, arbitrary: fc.integer({ min: 120, max: 134 }) },
      { weight: 1, arbitrary: fc.integer({ min: 0, max: 255 }) },
    ),
    ue4m3: fc.integer({ min: 0, max: 127 }),
  }[format];
  const [rows, columns] = [Math.ceil(lines.length / 2 ** rowShift), Math.ceil(depth / block)];
  const line = fc.array(code, { minLength: columns, maxLength: columns });
  return fc
    .array(line, { minLength: rows, maxLength: rows })
    .map((codes) => ({ format, block, rowShift, codes }));
}
