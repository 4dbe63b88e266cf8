/** Draws products and sums whose order is free: shapes as for any case, and values that tell orders and mistakes apart. */
import * as fc from "fast-check";
import { ArgumentError } from "../../../src/errors.js";
import { BLOCK_FORMATS } from "../../../src/formats/block.js";
import { isWide, WIDE_DTYPES, type WideDType } from "../../../src/tensor/shape.js";
import { allows, among, mayBe, type Supported } from "../../arbitraries/supported.js";
import { type GemmCase, resultType } from "../../operations/gemm/case.js";
import { blocksOf, formatOf, type OperandCase, tileOf, transformOf } from "../../operations/gemm/operand.js";
import type { Cases } from "../../operations/operations.js";
import { fromCodes, type PlainTensor } from "../../values/plain.js";
import { bitsOf } from "../../values/values.js";
import { supportedInputs } from "../supported.js";
import {
  codeOf,
  type ElementFormat,
  FLAVOUR_RUNS,
  FLAVOURS,
  type FlavourName,
  type Values,
  valuesOf,
} from "./fill.js";

/** The operations with a free order of summation. */
export const ORDERED_OPERATIONS = ["gemm", "columnSum"] as const;

/** An operation with a free order of summation. */
export type OrderedOperation = (typeof ORDERED_OPERATIONS)[number];

/** A drawn input, and the kind of its values. */
export interface Drawn<C> {
  readonly input: C;
  readonly flavour: FlavourName;
}

/** The share of inputs with a NaN or an infinity. */
const SPECIAL_EVERY = 13;
/** The largest number of multiplications of one input. */
const MAX_WORK = 2 ** 21;
/** The number of distinct shapes of a run, the number that is drawn at once, and the number of such draws. */
const SHAPES = { distinct: 32, drawn: 16, draws: 60 };

/** The values that some fields of every product must have: no GELU, and no second result. */
const FIXED = { gelu: false, geluInput: null, biasGradient: false } as const;

/**
 * The supported fields of products with a free order: a wide result, one split, a plain definition. Throws `ArgumentError` if the
 * subject supports no such field.
 */
function productFields(supported: Supported): Supported {
  const outDtype = among(supported, "outDtype", [null, ...WIDE_DTYPES]);
  const other = Object.entries(FIXED).find(([path, value]) => !mayBe(supported, path, value))?.[0];
  const missing = outDtype.length === 0 ? "outDtype" : other;
  if (missing !== undefined)
    throw new ArgumentError(
      `the subject supports ${missing} ${JSON.stringify(supported[missing])}; any order is for products without GELU and bias gradient, into f32, bf16 or f16`,
    );
  const splits = among(supported, "splitK", [1]);
  const [datapath] = among(supported, "datapath", ["fp32", "exact"]);
  return {
    ...supported,
    ...Object.fromEntries(Object.entries(FIXED).map(([path, value]) => [path, [value]])),
    outDtype,
    ...(splits.length > 0 ? { splitK: splits } : {}),
    ...(datapath ? { datapath: [datapath] } : {}),
  };
}

/** Whether terms of an operand are products of f32 values with scales of lines, blocks or the tensor. */
function isOrdered({ source, amax }: OperandCase, columnwise: boolean): boolean {
  if (amax || transformOf(source, columnwise ? "columnwise" : "rowwise") !== undefined) return false;
  if (source.kind !== "quantized") return true;
  const { scale } = BLOCK_FORMATS[source.spec.quantizer];
  return scale === "e8m0" || scale === "f32";
}

/** Codes of a matrix in a format. */
function filled(
  format: ElementFormat,
  shape: readonly [number, number],
  flavour: FlavourName,
  values: Values,
  side: 0 | 1,
) {
  const lines = Array.from({ length: shape[0] }, () => FLAVOURS[flavour](values, shape[1], format, side));
  return lines.flat().map((value) => codeOf(format, value));
}

/** Positive scales near 1; powers of two for integers, so that these stay exact. */
function filledScales(
  { source, scales }: OperandCase,
  flavour: FlavourName,
  values: Values,
): PlainTensor | undefined {
  if (!scales) return undefined;
  const isExact = flavour === "integers" || flavour === "sparse" || flavour === "ones";
  const pow2 = isExact || (source.kind === "quantized" && source.spec.pow2Scales);
  const { format } = blocksOf(source) ?? { format: "f32" as const };
  const code = (): number => {
    if (format === "e8m0") return 124 + values.below(7);
    const scale = 2 ** (values.below(5) - 2) * (pow2 ? 1 : 1 + values.uniform());
    return bitsOf(Math.fround(scale));
  };
  const zero = scales.codes.length;
  return fromCodes(scales.dtype, scales.shape, Array.from({ length: zero }, code));
}

function withOperand(operand: OperandCase, flavour: FlavourName, values: Values, side: 0 | 1): OperandCase {
  const format = formatOf(operand.source);
  const { shape, matrix } = operand.codes;
  const codes = fromCodes(format, shape, filled(format, matrix, flavour, values, side));
  const scales = filledScales(operand, flavour, values);
  return { ...operand, codes, ...(scales ? { scales } : {}) };
}

function addendLike(x: PlainTensor<WideDType>, flavour: FlavourName, values: Values): PlainTensor<WideDType> {
  return fromCodes(x.dtype, x.shape, filled(x.dtype, x.matrix, flavour, values, 0));
}

/** A product with values of this kind. Factors beyond the range of ordinary ones become 1 if the subject supports that. */
function withValues(drawn: GemmCase, flavour: FlavourName, values: Values, supported: Supported): GemmCase {
  const isOrdinary = (factor: number): boolean =>
    factor === 0 || (Math.abs(factor) > 0.1 && Math.abs(factor) < 10);
  const ordinary = (path: string, factor: number): number =>
    isOrdinary(factor) || !mayBe(supported, path, 1) ? factor : 1;
  const { c, bias, beta } = drawn;
  return {
    ...drawn,
    a: withOperand(drawn.a, flavour, values, 1),
    b: withOperand(drawn.b, flavour, values, 0),
    alpha: ordinary("alpha", drawn.alpha),
    ...(beta === undefined ? {} : { beta: ordinary("beta", beta) }),
    ...(c ? { c: addendLike(c, flavour, values) } : {}),
    ...(bias ? { bias: addendLike(bias, flavour, values) } : {}),
  };
}

/** A copy with one NaN or infinity in an operand. */
function withSpecial(x: PlainTensor, values: Values): PlainTensor {
  if (!isWide(x.dtype) || x.codes.length === 0) return x;
  const codes = Array.from(x.codes);
  const special = {
    f32: [0x7fc00000, 0x7f800000, 0xff800000],
    bf16: [0x7fc0, 0x7f80, 0xff80],
    f16: [0x7e00, 0x7c00, 0xfc00],
  };
  codes[values.below(codes.length)] = special[x.dtype][values.below(3)] as number;
  return fromCodes(x.dtype, x.shape, codes);
}

/** Whether a drawn product has a sum that is judged. */
function isJudged({ a, b, layout, ...options }: GemmCase): boolean {
  const [columns, depth] = a.codes.matrix;
  const [rows] = b.codes.matrix;
  const work = rows * columns * depth;
  const operands = [
    isOrdered(a, layout !== "TN"),
    isOrdered(b, layout === "NT"),
    isWide(resultType({ b, ...options })),
    tileOf(a.source) !== undefined || a.scales === undefined,
  ];
  return work > 0 && work <= MAX_WORK && operands.every((isSupported) => isSupported);
}

/** The inputs of a run, drawn from its seed. Throws `ArgumentError` if the subject supports no input with a free order. */
export function drawProducts(supported: Supported, runs: number, seed: number): readonly Drawn<GemmCase>[] {
  const fields = productFields(supported);
  const arbitrary = supportedInputs("gemm", fields).gemm;
  if (!arbitrary) throw new ArgumentError("no products are supported");
  const shapes: GemmCase[] = [];
  for (let draw = 0; shapes.length < Math.min(runs, SHAPES.distinct) && draw < SHAPES.draws; draw++)
    shapes.push(...fc.sample(arbitrary, { numRuns: SHAPES.drawn, seed: (seed + draw) | 0 }).filter(isJudged));
  if (shapes.length === 0)
    throw new ArgumentError(
      "the subject supports no product whose order is judged: operands without tensor amaxes and Hadamard transform, of K above 0, into f32, bf16 or f16",
    );
  return Array.from({ length: runs }, (_, i) => {
    const shape = shapes[i % shapes.length] as GemmCase;
    const flavour = FLAVOUR_RUNS[i % FLAVOUR_RUNS.length] as FlavourName;
    const values = valuesOf((Math.imul(seed, 7919) + i) | 0);
    const input = withValues(shape, flavour, values, fields);
    const special = { ...input, b: { ...input.b, codes: withSpecial(input.b.codes, values) } };
    const isSpecial = i % SPECIAL_EVERY === SPECIAL_EVERY - 1 && allows(supported, special);
    return { input: isSpecial ? special : input, flavour };
  });
}

/** The largest number of rows and of columns of a drawn sum. */
const SUM_SIZES = { rows: 400, columns: 24 };

/** Column sums, drawn from the seed of the run. */
export function drawSums(
  supported: Supported,
  runs: number,
  seed: number,
): readonly Drawn<Cases["columnSum"]>[] {
  const types = among(supported, "x.dtype", WIDE_DTYPES);
  const results = among(supported, "outDtype", WIDE_DTYPES);
  if (types.length * results.length === 0)
    throw new ArgumentError(
      "the subject supports no sum of f32, bf16 or f16 numbers into one of these types",
    );
  return Array.from({ length: runs }, (_, i) => {
    const flavour = FLAVOUR_RUNS[i % FLAVOUR_RUNS.length] as FlavourName;
    const values = valuesOf((Math.imul(seed, 7919) + i) | 0);
    const [rows, columns] = [1 + values.below(SUM_SIZES.rows), 1 + values.below(SUM_SIZES.columns)];
    const dtype = types[i % types.length] as WideDType;
    const lines = Array.from({ length: columns }, () => FLAVOURS[flavour](values, rows, dtype, 0));
    const codes = Array.from({ length: rows * columns }, (_, index) =>
      codeOf(dtype, lines[index % columns]?.[Math.floor(index / columns)] as number),
    );
    const x = fromCodes(dtype, [rows, columns], codes);
    const outDtype = results[Math.floor(i / types.length) % results.length] as WideDType;
    return { input: { x, outDtype }, flavour };
  });
}
