/** All quantizers: tiles, scales, codes. */
import { SCALAR_FORMATS, type ScalarLayout } from "../../../src/formats/scalar.js";
import { random8 } from "../core/philox.js";
import { add, bitsOf, div, FLT_MAX, fromBits, mul } from "../core/rational.js";
import { decode, encodeByCarry, encodeByWord, type Step, steps } from "../core/scalar.js";
import {
  amaxOf,
  type BlockScale,
  E8M0_RULES,
  type ErrorMetric,
  f32Scale,
  fourOverSix,
  halfRange,
  largest,
  quotient,
  reciprocalScale,
  roundedIn,
  scaleFromAmax,
  TENSOR_RULES,
  twoLevel,
  ue5m3Quotient,
  type WideName,
} from "../core/scale.js";
import {
  copySize,
  copyTiling,
  isPerTensor,
  type LayoutSpec,
  layoutFamily,
  type ScaleRule,
  type Shape,
  type Usage,
} from "../layout/layout.js";
import { rht16 } from "./hadamard.js";

/** An [M, K] tensor whose values are widened exactly to f32. */
export interface Source {
  readonly data: Float32Array;
  readonly shape: Shape;
  readonly dtype: WideName;
}

/** The options as in the command line's metadata. An absent option has the command line's default. */
export interface QuantizeSpec extends LayoutSpec {
  readonly format?:
    | "e4m3"
    | "e5m2"
    | "e4m3fnuz"
    | "e5m2fnuz"
    | "e2m3"
    | "e3m2"
    | "e2m1"
    | "int8"
    | "s2f6"
    | "int4";
  readonly usage?: readonly Usage[];
  /** The rule, if it is not the quantizer's default. */
  readonly scaleRule?: ScaleRule | "f32";
  /** The element scaling, if it is not one multiplication. */
  readonly elementScaling?: keyof typeof SCALINGS;
  /** For fp8-current and fp8-row (default false) and fp8-block (default true): scales are powers of two. */
  readonly pow2Scales?: boolean;
  /** For fp8-current, fp8-block and fp8-row: the minimum amax. */
  readonly amaxEpsilon?: number;
  /** For fp8-row: the maximum amax, rounded to the type of x. 0: unlimited. */
  readonly amaxLimit?: number;
  /** For fp8-delayed: the caller's scale. */
  readonly scale?: number;
  /**
   * For nvfp4 with 1x16 tiles of bf16: the columnwise copy quantizes the Hadamard transform. If `rhtSigns` is false, there are no
   * random signs.
   */
  readonly rht?: boolean;
  readonly rhtSigns?: boolean;
  readonly stochastic?: boolean;
  readonly seed?: bigint;
  readonly offset?: bigint;
  /** The position of x in a larger matrix, whose element positions then select the random bits. */
  readonly part?: Part | undefined;
  /** For nvfp4 without rht and stochastic: the error measure of 4over6. */
  readonly fourOverSix?: ErrorMetric;
  /** For stochastic: one word for each element of the copies, in the order of their codes, instead of seed and offset. */
  readonly words?: { readonly [U in Usage]?: ArrayLike<number> | undefined } | undefined;
  /** Only with fourOverSix. Default 256. */
  readonly e4m3Max?: 256 | 448;
  /** For nvfp4 without rht and stochastic, in 1x16 tiles: each line of a copy has an amax. */
  readonly rowScaled?: boolean;
  /** For fp8-current and nvfp4: replaces the tensor's amax. */
  readonly amax?: number;
}

/**
 * The position of a matrix in a larger one of `rows` by `columns`. Its pieces, of `width` columns each, begin `stride` columns
 * apart.
 */
export interface Part {
  readonly rows: number;
  readonly columns: number;
  readonly row: number;
  readonly column: number;
  readonly width: number;
  readonly stride: number;
}

/** One copy before its codes are packed. */
export interface QuantizedCopy {
  readonly codes: Uint8Array;
  /** The stored shape, padding rows included. */
  readonly shape: Shape;
  /** f32 bit patterns, or codes of e8m0, e4m3 or ue5m3, in logical layout. */
  readonly scale: readonly number[];
  readonly scaleShape: readonly number[];
  /** An f32 bit pattern; nvfp4 only. */
  readonly amax?: number;
  /** An f32 bit pattern for each row (columnwise: each column); replaces `amax` with rowScaled. */
  readonly amaxes?: readonly number[];
}

export interface Quantized {
  readonly rowwise?: QuantizedCopy;
  readonly columnwise?: QuantizedCopy;
  /** An f32 bit pattern; fp8-delayed only. */
  readonly amax?: number;
}

export type { WideName };

type Lines = readonly (readonly number[])[];

/** The name of a spec's element format. Quantizers of e2m1 have no other format. */
export function elementFormat(spec: QuantizeSpec): NonNullable<QuantizeSpec["format"]> {
  const { format } = layoutFamily(spec);
  return format === "e2m1" ? format : (spec.format ?? format);
}

/** The layout of a spec's element format. */
export function elementLayout(spec: QuantizeSpec): ScalarLayout {
  return SCALAR_FORMATS[elementFormat(spec)];
}

/** Quantizes to one copy or both. Throws RangeError for incompatible options. */
export function quantize(x: Source, spec: QuantizeSpec): Quantized {
  check(x, spec);
  const usage = spec.usage ?? ["rowwise"];
  return {
    ...(usage.includes("rowwise") ? { rowwise: quantizeCopy(x, spec, "rowwise") } : {}),
    ...(usage.includes("columnwise") ? { columnwise: columnwiseCopy(x, spec) } : {}),
    ...(spec.quantizer === "fp8-delayed" ? { amax: bitsOf(amaxOf(x.data)) } : {}),
  };
}

function check(x: Source, spec: QuantizeSpec): void {
  const { rht, stochastic, fourOverSix: four, quantizer, tile } = spec;
  const fail = (reason: string) => {
    throw new RangeError(`quantize: ${reason}`);
  };
  if ((rht || four) && quantizer !== "nvfp4") fail(`rht and fourOverSix are nvfp4's, not ${quantizer}'s`);
  if (rht && (x.dtype !== "bf16" || tile === "16x16")) fail("rht needs bf16 and tile 1x16");
  if (four && (rht || stochastic)) fail("fourOverSix goes with neither rht nor stochastic");
  if (spec.rowScaled && (quantizer !== "nvfp4" || rht || stochastic || tile === "16x16"))
    fail("rowScaled is for nvfp4 in 1x16 tiles, without rht and stochastic");
}

/**
 * The columnwise copy. If both copies share one scale, it has the rowwise codes; otherwise the source is quantized separately.
 */
function columnwiseCopy(x: Source, spec: QuantizeSpec): QuantizedCopy {
  const sameBytes = isPerTensor(spec) || (spec.quantizer === "fp8-block" && spec.tile === "128x128");
  const paddedSource = padWithZeros(x, copySize(spec, "columnwise", x.shape));
  const { part } = spec;
  // the larger matrix is padded too
  const paddedPart = part && { ...part, rows: copySize(spec, "columnwise", [part.rows, part.columns])[0] };
  return quantizeCopy(
    spec.rht ? transformSource(paddedSource, spec) : paddedSource,
    { ...spec, part: paddedPart },
    "columnwise",
    sameBytes ? "rowwise" : "columnwise",
  );
}

/** Pads a tensor with rows of zeros. */
function padWithZeros(x: Source, shape: Shape): Source {
  const data = new Float32Array(shape[0] * shape[1]);
  data.set(x.data);
  return { ...x, data, shape };
}

/** Quantizes to one copy. `drawAs` is the copy whose random bits are used (numerics.md choice 6). */
function quantizeCopy(x: Source, spec: QuantizeSpec, usage: Usage, drawAs: Usage = usage): QuantizedCopy {
  const [m, k] = x.shape;
  const tiling = copyTiling(spec, usage, x.shape);
  const drawsTransposed = copyTiling(spec, drawAs, x.shape).codesTransposed;
  const layout = elementLayout(spec);
  const rule = scaleRule(x, spec, layout);
  const tiles = new Map<number, BlockScale>();
  const blockScale = (r: number, c: number): BlockScale => {
    const [firstRow, firstColumn] = [r - (r % tiling.tile[0]), c - (c % tiling.tile[1])];
    const key = firstRow * k + firstColumn;
    const elementRule = spec.rowScaled ? scaleRule(readLine(x, usage, r, c), spec, layout) : rule;
    const scale = tiles.get(key) ?? elementRule(tileLines(x, [firstRow, firstColumn], tiling.tile));
    tiles.set(key, scale);
    return scale;
  };
  const code = (r: number, c: number): number => {
    const bits = bitsOf(
      SCALINGS[spec.elementScaling ?? "multiply"](x.data[r * k + c] ?? 0, blockScale(r, c), x.dtype),
    );
    if (isHalfDown(spec.elementScaling)) return halfDownCode(bits, layout, HALF_DOWN[spec.elementScaling]);
    if (!spec.stochastic) {
      const rounding = spec.elementScaling === "multiplyHalfAway" ? "tiesToAway" : "tiesToEven";
      const nearest = nearestCode(bits, layout, rounding);
      const isZero = nearest === 2 ** (layout.exponentBits + layout.mantissaBits);
      return isZero && spec.elementScaling === "dividePlusZero" ? 0 : nearest;
    }
    const callerWords = spec.words?.[usage];
    if (callerWords)
      return encodeByWord(
        bits,
        layout,
        "saturate",
        callerWords[drawsTransposed ? c * m + r : r * k + c] ?? 0,
      );
    const [rowOffset, columnOffset, height, width] = spec.part ? inWhole(spec.part, r, c) : [r, c, m, k];
    const index = drawsTransposed
      ? BigInt(columnOffset) * BigInt(height) + BigInt(rowOffset)
      : BigInt(rowOffset) * BigInt(width) + BigInt(columnOffset);
    const random = random8(spec.seed ?? 0n, spec.offset ?? 0n, drawAs === "rowwise" ? 0 : 1, index);
    return encodeByCarry(bits, layout, random);
  };
  const codes = matrix(x.shape, [1, 1], tiling.codesTransposed, code);
  const scales = matrix(x.shape, tiling.step, tiling.scalesTransposed, (r, c) => blockScale(r, c).stored);
  const perTensor = { scale: [rule([[...x.data]]).stored], scaleShape: [1] };
  return {
    codes: Uint8Array.from(codes.values),
    shape: codes.shape,
    ...(isPerTensor(spec) ? perTensor : { scale: scales.values, scaleShape: scales.shape }),
    ...amaxOfCopy(x, spec, usage),
  };
}

/** The amax of the tensor or of each line, where a copy stores it. */
function amaxOfCopy(x: Source, spec: QuantizeSpec, usage: Usage): Pick<QuantizedCopy, "amax" | "amaxes"> {
  if (spec.quantizer !== "nvfp4") return {};
  if (!spec.rowScaled) return { amax: bitsOf(storedOfTensor(x, spec)) };
  const count = x.shape[usage === "rowwise" ? 0 : 1];
  const lineAmaxBits = (line: number): number => bitsOf(amaxOf(readLine(x, usage, line, line).data));
  return { amaxes: Array.from({ length: count }, (_, line) => lineAmaxBits(line)) };
}

/** The row of an element (columnwise: the column) as a separate tensor. */
function readLine(x: Source, usage: Usage, r: number, c: number): Source {
  const [m, k] = x.shape;
  const row = usage === "rowwise";
  const shape: Shape = row ? [1, k] : [m, 1];
  const elementAt = (i: number): number => x.data[row ? r * k + i : i * k + c] as number;
  return { ...x, shape, data: Float32Array.from({ length: row ? k : m }, (_, i) => elementAt(i)) };
}

/** The row and column of an element in the larger matrix, and that matrix's size. */
function inWhole({ rows, columns, row, column, width, stride }: Part, r: number, c: number) {
  return [row + r, column + Math.floor(c / width) * stride + (c % width), rows, columns] as const;
}

/** Each element scaling: computes the number that is rounded to a code (numerics.md §3.6). */
const SCALINGS = {
  multiply: (x, { multiplier }) => mul(x, multiplier),
  multiplyFromNormal: (x, { multiplier }) => mul(x, Math.min(multiplier, 2 ** 126)),
  multiplyUnlessLeast: (x, { stored, multiplier }) => (stored === 0 ? x : mul(x, multiplier)),
  multiplyTypedAdd: (x, { multiplier }, type) => add(roundedIn(mul(x, multiplier), type), 0),
  multiplyHalfDown: (x, { multiplier }) => mul(x, multiplier),
  multiplyHalfDownMinus: (x, { multiplier }) => mul(x, multiplier),
  multiplyHalfAway: (x, { multiplier }) => mul(x, multiplier),
  multiplyBoundedHalfDown: (x, { multiplier }) => mul(clampTo(x, 1.5 * 2 ** 127), multiplier),
  divide: (x, scale) => div(x, scaleDivisor(scale)),
  divideAdd: (x, scale) => add(div(x, scaleDivisor(scale)), 0),
  dividePlusZero: (x, scale) => div(x, scaleDivisor(scale)),
  divideHalfDown: (x, scale) => div(x, scaleDivisor(scale)),
  divideTyped: (x, scale, type) => roundedIn(div(x, scaleDivisor(scale)), type),
  divideTypedAdd: (x, scale, type) => add(roundedIn(div(x, scaleDivisor(scale)), type), 0),
} as const satisfies Readonly<Record<string, (x: number, scale: BlockScale, type: WideName) => number>>;

function clampTo(x: number, limit: number): number {
  return Math.abs(x) > limit ? Math.sign(x) * limit : x;
}

function scaleDivisor({ stored, divisor }: BlockScale): number {
  return divisor ?? fromBits(stored);
}

/** The sign of zeros under the scalings with ties toward zero: for values that round to zero, and for +0 itself. */
const HALF_DOWN = {
  multiplyHalfDown: { rounded: "plus", own: "same" },
  multiplyHalfDownMinus: { rounded: "same", own: "minus" },
  multiplyBoundedHalfDown: { rounded: "plus", own: "same" },
  divideHalfDown: { rounded: "plus", own: "same" },
} as const;

function isHalfDown(name: string | undefined): name is keyof typeof HALF_DOWN {
  return name !== undefined && Object.hasOwn(HALF_DOWN, name);
}

/** The code nearest to a value, ties toward zero, by exact distances (numerics.md §3.6). */
function halfDownCode(
  bits: number,
  layout: ScalarLayout,
  { rounded, own: plusZero }: (typeof HALF_DOWN)[keyof typeof HALF_DOWN],
): number {
  const value = fromBits(bits);
  const signBit = 2 ** (layout.exponentBits + layout.mantissaBits);
  if (Number.isNaN(value)) return nearestCode(bits, layout, "tiesToEven");
  const magnitude = Math.min(Math.abs(value), largest(layout));
  let code = 0;
  while (decode(code, layout) < magnitude) code++;
  // f64 holds the distances exactly: a 24-bit significand and two codes of few bits
  if (code > 0 && magnitude - decode(code - 1, layout) <= decode(code, layout) - magnitude) code--;
  if (value === 0 && plusZero === "minus") return signBit;
  if (code === 0 && rounded === "plus") return 0;
  return bits >= 2 ** 31 ? code + signBit : code;
}

const NEAREST = {
  tiesToEven: new WeakMap<ScalarLayout, readonly Step[]>(),
  tiesToAway: new WeakMap<ScalarLayout, readonly Step[]>(),
};

/**
 * As `encode` with ties to even or away from zero, and saturation. Looks the code up in the format's exact steps, which are
 * cached.
 */
function nearestCode(bits: number, layout: ScalarLayout, rounding: keyof typeof NEAREST): number {
  const points = NEAREST[rounding].get(layout) ?? steps(layout, rounding, "saturate");
  NEAREST[rounding].set(layout, points);
  let [low, high] = [0, points.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((points[middle] as Step).first <= bits) low = middle;
    else high = middle;
  }
  return (points[low] as Step).code;
}

/** Calls `elementAt` for every step-th row and column of an [M, K] grid, row by row, or column by column if transposed. */
export function matrix(
  [m, k]: Shape,
  [rowOffset, columnOffset]: Shape,
  transposed: boolean,
  elementAt: (r: number, c: number) => number,
) {
  const rows = Math.ceil(m / rowOffset);
  const columns = Math.ceil(k / columnOffset);
  const shape: Shape = transposed ? [columns, rows] : [rows, columns];
  const values = Array.from({ length: rows * columns }, (_, n) => {
    const [i, j] = [Math.floor(n / shape[1]), n % shape[1]];
    return transposed
      ? elementAt(j * rowOffset, i * columnOffset)
      : elementAt(i * rowOffset, j * columnOffset);
  });
  return { values, shape };
}

/** The elements of a tile inside the tensor, as rows. A tile of one column is one line. */
function tileLines(
  { data, shape: [m, k] }: Source,
  [firstRow, firstColumn]: Shape,
  [height, width]: Shape,
): Lines {
  const rows = Array.from({ length: Math.min(height, m - firstRow) }, (_, i) => {
    const start = (firstRow + i) * k + firstColumn;
    return [...data.subarray(start, start + Math.min(width, k - firstColumn))];
  });
  return width === 1 ? [rows.flat()] : rows;
}

function createRule(spec: QuantizeSpec): ScaleRule {
  const defaultRule: ScaleRule = layoutFamily(spec).rule;
  if (spec.scaleRule !== "f32") return spec.scaleRule ?? defaultRule;
  return defaultRule === "given" || defaultRule === "whole" ? defaultRule : "block";
}

function scaleRule(x: Source, spec: QuantizeSpec, layout: ScalarLayout): (lines: Lines) => BlockScale {
  const max = largest(layout);
  const epsilon = spec.amaxEpsilon ?? 0;
  const rule = createRule(spec);
  const limit = spec.amaxLimit ? roundedIn(Math.fround(spec.amaxLimit), x.dtype) : Number.POSITIVE_INFINITY;
  const limitedAmax = (lines: Lines): number => Math.min(amaxOf(lines.flat()), limit);
  switch (rule) {
    case "given":
      return () => f32Scale(spec.scale ?? 1);
    case "whole": {
      const options = { max, epsilon, pow2: spec.pow2Scales ?? false, overflow: FLT_MAX };
      return (lines) => f32Scale(scaleFromAmax(spec.amax ?? amaxOf(lines.flat()), options));
    }
    case "block": {
      const overflow = x.dtype === "f32" ? FLT_MAX : largest(SCALAR_FORMATS[x.dtype]);
      const options = { max, epsilon, pow2: spec.pow2Scales ?? layoutFamily(spec).pow2 ?? false, overflow };
      return (lines) => f32Scale(scaleFromAmax(limitedAmax(lines), options));
    }
    case "twoLevel": {
      const g = spec.amax ?? amaxOf(x.data);
      const { fourOverSix: metric, e4m3Max = 256 } = spec;
      if (metric) return (lines) => fourOverSix(lines, { g, e4m3Max, metric });
      return (lines) => twoLevel(amaxOf(lines.flat()), g);
    }
    case "e4m3Quotient":
    case "twoLevelQuotient":
    case "twoLevelProduct":
    case "twoLevelDivisor":
    case "e4m3HalfUp": {
      const t = storedOfTensor(x, spec);
      return (lines) => TENSOR_RULES[rule].ofBlock(amaxOf(lines.flat()), t, x.dtype);
    }
    case "ue5m3Quotient":
      return (lines) => ue5m3Quotient(amaxOf(lines.flat()), x.dtype);
    case "f32Reciprocal":
      return (lines) => f32Scale(reciprocalScale(limitedAmax(lines), { max, epsilon, type: x.dtype }));
    case "f32Quotient":
    case "f32QuotientTyped":
    case "f32QuotientLeast":
    case "f32QuotientRange":
    case "f32QuotientUp":
      return (lines) => {
        const amax = spec.amax !== undefined && isPerTensor(spec) ? spec.amax : limitedAmax(lines);
        const top = rule === "f32QuotientRange" ? halfRange(layout) : max;
        const scale = quotient(rule, amax, { max: top, epsilon, type: x.dtype });
        return { stored: bitsOf(scale), multiplier: div(1, scale) };
      };
    default:
      return (lines) => E8M0_RULES[rule](amaxOf(lines.flat()), layout);
  }
}

/** The stored number of the tensor: its amax, or the rule's tensor scale (numerics.md §5.11). */
function storedOfTensor(x: Source, spec: QuantizeSpec): number {
  const amax = spec.amax ?? amaxOf(x.data);
  const rule = spec.scaleRule ?? "twoLevel";
  return isTensorRule(rule) ? TENSOR_RULES[rule].ofTensor(amax, x.dtype) : amax;
}

/** Whether a rule stores a tensor scale. */
export function isTensorRule(rule: string): rule is keyof typeof TENSOR_RULES {
  return Object.hasOwn(TENSOR_RULES, rule);
}

/** The tensor after the Hadamard transform of every 16 consecutive rows of each column. */
function transformSource(x: Source, spec: QuantizeSpec): Source {
  const [m, k] = x.shape;
  const data = new Float32Array(m * k);
  for (let top = 0; top < m; top += 16) {
    for (let c = 0; c < k; c++) {
      const chunk = Array.from({ length: 16 }, (_, i) => x.data[(top + i) * k + c] ?? 0);
      rht16(chunk, spec.rhtSigns ?? true).forEach((bits, i) => {
        data[(top + i) * k + c] = fromBits(bits * 0x10000);
      });
    }
  }
  return { ...x, data };
}
