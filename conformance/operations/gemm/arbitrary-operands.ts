/** Arbitraries of product operands of every kind that the library multiplies, and of pairs of kinds. */
import * as fc from "fast-check";
import { BLOCK_FORMATS, type BlockFormatName } from "../../../src/formats/block.js";
import { factsOf, SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { tensorScaleRole } from "../../../src/formats/scale-rules.js";
import type { ScaledTensor } from "../../../src/ops/gemm/operand.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { splitmix32 } from "../../arbitraries/random.js";
import { layoutsOf, QUANTIZERS, specAmong } from "../../arbitraries/specs.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { codesOf } from "./arbitrary-codes.js";
import { blocksOf, formatOf, type OperandCase, type Source, tileOf } from "./operand.js";

/**
 * The number of distinct lines of an operand. Other lines repeat them, so that the oracle computes few dot products.
 */
const DISTINCT = 5;

/** Whether an operand may be of a kind. */
export type Accepts = (source: Source) => boolean;

/** Draws from the accepted kinds; undefined if none is accepted. */
type Kinds = (accepts: Accepts) => fc.Arbitrary<Source> | undefined;

const plain =
  (...formats: readonly (ScalarFormat | "f32")[]): Kinds =>
  (accepts) => {
    const all = formats.map((format) => ({ kind: "plain", format }) as const).filter(accepts);
    return all.length > 0 ? fc.constantFrom<Source[]>(...all) : undefined;
  };

const FP8 = ["e4m3", "e5m2"] as const;

const scaled =
  (...tiles: readonly NonNullable<ScaledTensor["tile"]>[]): Kinds =>
  (accepts) => {
    const has = (format: (typeof FP8)[number], tile: (typeof tiles)[number]): boolean =>
      accepts({ kind: "scaled", format, tile });
    const formats = FP8.filter((format) => tiles.some((tile) => has(format, tile)));
    const left = tiles.filter((tile) => formats.some((format) => has(format, tile)));
    if (left.length === 0) return undefined;
    const kind = fc.constant("scaled" as const);
    return fc.record({ kind, format: fc.constantFrom(...formats), tile: fc.constantFrom(...left) });
  };

const quantized =
  (...names: readonly BlockFormatName[]): Kinds =>
  (accepts) => {
    const sourcesOf = (spec: QuantizeSpec): readonly Source[] =>
      layoutsOf(spec)
        .map((layout) => ({ kind: "quantized", spec, scaleLayout: layout }) as const)
        .filter(accepts);
    const isWanted = (spec: QuantizeSpec): boolean =>
      tensorScaleRole(spec.scaleRule) !== "divisor" && sourcesOf(spec).length > 0;
    return specAmong(names, isWanted)?.chain((spec) => fc.constantFrom(...sourcesOf(spec)));
  };

type Weighted<T> = readonly [weight: number, each: T];

/** One of the kinds, by weight. */
const either =
  (...all: readonly (Weighted<Kinds> | Kinds)[]): Kinds =>
  (accepts) => {
    const some = all.flatMap((each) => {
      const [weight, kinds] = typeof each === "function" ? [1, each] : each;
      const arbitrary = kinds(accepts);
      return arbitrary ? [{ weight, arbitrary }] : [];
    });
    return some.length > 0 ? fc.oneof(...some) : undefined;
  };

const fp8 = either(plain(...FP8), scaled("tensor"), quantized("fp8-current", "fp8-delayed"));
const fp8Row = either([2, quantized("fp8-row")], scaled("1xK"));
const fp8Block = either([2, quantized("fp8-block")], scaled("1x128", "128x128"));
/** The block FP8 operands that hardware takes as b. */
const fp8Lines: Kinds = (accepts) => fp8Block((source) => blocksOf(source)?.lines === 1 && accepts(source));
const mx = quantized(...QUANTIZERS.filter((name) => BLOCK_FORMATS[name].scale === "e8m0"));
const narrow = plain(
  ...SCALAR_FORMAT_NAMES.filter(
    (name) => !["e4m3", "e5m2"].includes(name) && factsOf(name).bits <= 8 && SCALAR_FORMATS[name].signed,
  ),
);
const any = either(
  fp8,
  fp8Row,
  fp8Block,
  mx,
  quantized("nvfp4"),
  quantized("int8-row"),
  quantized("fp4-ue5m3"),
  quantized("int4-group"),
  narrow,
  plain("bf16", "f16", "f32", "tf32"),
);

/** The codes that bf16 operands are multiplied by. */
const codes = either(
  fp8,
  fp8Row,
  [2, fp8Block],
  [2, mx],
  [2, quantized("nvfp4")],
  quantized("fp4-ue5m3"),
  narrow,
);

/** The kinds of a and b by weight: mostly two of the same kind, as hardware requires. */
const PAIRS: readonly Weighted<readonly [a: Kinds, b: Kinds]>[] = [
  [6, [fp8, fp8]],
  [3, [fp8Row, fp8Row]],
  [1, [fp8, fp8Row]],
  [1, [fp8Row, fp8]],
  [4, [fp8Block, fp8Lines]],
  [1, [fp8Block, fp8Block]],
  [3, [mx, mx]],
  [1, [quantized("mxfp4"), quantized("mxfp4")]],
  [2, [quantized("nvfp4"), quantized("nvfp4")]],
  [1, [quantized("fp4-ue5m3"), quantized("fp4-ue5m3")]],
  [1, [quantized("int4-group"), quantized("int4-group")]],
  [3, [plain("bf16"), plain("bf16")]],
  [3, [codes, plain("bf16")]],
  [1, [plain("bf16"), codes]],
  [2, [plain("f16"), plain("f16")]],
  [2, [plain("f32"), plain("f32")]],
  [1, [plain("tf32"), plain("tf32")]],
  [1, [narrow, either(narrow, plain(...FP8))]],
  [2, [any, any]],
];

/** The kinds of two operands. */
export type Sources = readonly [a: Source, b: Source];

/** The accepted kinds of a and b; undefined if there are none. */
export function sourcesAmong(acceptsA: Accepts, acceptsB: Accepts): fc.Arbitrary<Sources> | undefined {
  const rows = PAIRS.flatMap(([weight, [ofA, ofB]]) => {
    const [a, b] = [ofA(acceptsA), ofB(acceptsB)];
    return a && b ? [{ weight, arbitrary: fc.tuple(a, b) }] : [];
  });
  return rows.length > 0 ? fc.oneof(...rows) : undefined;
}

/** The number that rows and columns of an operand are multiples of. */
export function multipleOf(source: Source): number {
  if (source.kind === "quantized") return BLOCK_FORMATS[source.spec.quantizer].multiple;
  return source.format !== "f32" && factsOf(source.format).storageBits === 4 ? 2 : 1;
}

/** An operand of `lines` lines with `depth` elements each. */
export function operandCase(source: Source, lines: number, depth: number): fc.Arbitrary<OperandCase> {
  const drawn = {
    seed: fc.nat(),
    flavour: fc.constantFrom("uniform", "narrow", "small", "sparse", "cancelling", "wild"),
    wildScales: fc.integer({ min: 0, max: 4 }).map((n) => n === 4),
    plants: fc.array(fc.tuple(fc.nat(), fc.nat({ max: 5 })), { maxLength: 2 }),
    lead: fc.constantFrom(1, 1, 2),
  } as const;
  return fc.record(drawn).map(({ seed, flavour, wildScales, plants, lead }) => {
    const format = formatOf(source);
    const several = Math.min(DISTINCT, lines);
    const distinctLines = codesOf(format, several, depth, seed, flavour).lines.map((line) => [...line]);
    for (const [at, which] of several * depth > 0 ? plants : []) {
      const line = distinctLines[at % several] as number[];
      line[Math.floor(at / several) % depth] = special(format, which);
    }
    const next = splitmix32(seed);
    const picks = Array.from({ length: lines }, (_, i) => (i < several ? i : next() % several));
    const codes = picks.flatMap((pick) => distinctLines[pick] as number[]);
    const scales = scalesOf(source, picks, depth, next, wildScales);
    const hasAmax = source.kind === "quantized" && BLOCK_FORMATS[source.spec.quantizer].tensorAmax;
    const count = source.kind === "quantized" && source.spec.rowScaled ? lines : 1;
    const amaxes = (): number[] =>
      Array.from({ length: count }, () => Math.abs(f32Scale(next, wildScales, false)));
    return {
      source,
      codes: fromCodes(format, [lines, depth], codes),
      lead,
      ...(scales ? { scales } : {}),
      ...(hasAmax ? { amax: fromCodes("f32", [count], amaxes()) } : {}),
    };
  });
}

/** One special code: zero, minus zero, the largest, the smallest, or infinity or NaN if the format has them. */
function special(format: ScalarFormat | "f32", which: number): number {
  const { bits, maxCode } = format === "f32" ? { bits: 32, maxCode: 0x7f7fffff } : factsOf(format);
  const sign = 2 ** (bits - 1);
  return [0, sign, maxCode, 1, Math.min(maxCode + 1, sign - 1), 2 * sign - 1][which] as number;
}

const F32_SPECIALS = [0, 0x7f800000, 0x7fc00000, 1, 0x007fffff, 0x7f7fffff, 0x3f800000, 0x00800000];

/** The bit pattern of a positive scale: near one, or of any size if `wild`. */
function f32Scale(next: () => number, wild: boolean, pow2: boolean): number {
  const word = next();
  const mantissa = pow2 ? 0 : word & 0x7fffff;
  if (!wild) return ((119 + ((word >>> 23) % 17)) << 23) + mantissa;
  if (!pow2 && word % 4 === 0) return F32_SPECIALS[(word >>> 8) % F32_SPECIALS.length] as number;
  return ((1 + ((word >>> 23) % 254)) << 23) + mantissa;
}

/** Scale codes. Repeated lines also repeat their line scales. */
function scalesOf(
  source: Source,
  picks: readonly number[],
  depth: number,
  next: () => number,
  wild: boolean,
): PlainTensor | undefined {
  if (source.kind === "plain") return undefined;
  const pow2 = source.kind === "quantized" ? source.spec.pow2Scales : next() % 2 === 0;
  const blocks = blocksOf(source);
  if (tileOf(source) === "1xK") {
    const across = Math.min(depth, 1);
    const codes = Array.from({ length: picks.length * across }, () => f32Scale(next, wild, pow2));
    return fromCodes("f32", [picks.length, across], codes);
  }
  if (!blocks) return fromCodes("f32", [1], [f32Scale(next, wild, pow2)]);
  const { format, lines, length } = blocks;
  const code = (): number => {
    if (format === "f32") return f32Scale(next, wild, pow2);
    if (wild) return next() % 256;
    return format === "e8m0" ? 119 + (next() % 17) : next() % 127;
  };
  const across = Math.ceil(depth / length);
  const rows = Array.from({ length: Math.max(DISTINCT, Math.ceil(picks.length / lines)) }, () =>
    Array.from({ length: across }, code),
  );
  const chosen = lines === 1 ? picks : Array.from({ length: Math.ceil(picks.length / lines) }, (_, i) => i);
  return fromCodes(
    format,
    [chosen.length, across],
    chosen.flatMap((row) => rows[row] as number[]),
  );
}
