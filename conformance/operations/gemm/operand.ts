/** An operand of a matrix product as lines along K, and its conversion to the library's and the oracle's forms. */
import type { Backend } from "../../../src/backends/backend.js";
import { BLOCK_FORMATS, isLineWide, isTensorWide, type Tile, tileSize } from "../../../src/formats/block.js";
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "../../../src/formats/scalar.js";
import type { GemmInput, ScaledTensor } from "../../../src/ops/gemm/operand.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../../../src/tensor/quantized.js";
import type { Shape } from "../../../src/tensor/shape.js";
import { fromBits } from "../../oracle/core/rational.js";
import { decode } from "../../oracle/core/scalar.js";
import type { FactorType } from "../../oracle/gemm/datapath.js";
import type { OracleOperand } from "../../oracle/gemm/gemm.js";
import { copyTiling } from "../../oracle/layout/layout.js";
import { dequantize } from "../../oracle/quantize/dequantize.js";
import { fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { layOut, oracleSpec, scaleTensor, uploadQuantized } from "../quantize/quantized.js";

/** The kind of an operand. */
export type Source =
  | { readonly kind: "plain"; readonly format: ScalarFormat | "f32" }
  /** FP8 codes with f32 scales. */
  | {
      readonly kind: "scaled";
      readonly format: "e4m3" | "e5m2";
      readonly tile: NonNullable<ScaledTensor["tile"]>;
    }
  | { readonly kind: "quantized"; readonly spec: QuantizeSpec; readonly scaleLayout: ScaleLayout };

/** An operand, independent of how it is stored. */
export interface OperandCase {
  /** Its kind: plain, with scales, or quantized. */
  readonly source: Source;
  /** [lines, K] */
  readonly codes: PlainTensor;
  /** [lines or tiles of lines, blocks along K], [lines, 1] for scales of lines, or [1] for a per-tensor scale. */
  readonly scales?: PlainTensor | undefined;
  /** nvfp4 only. */
  readonly amax?: PlainTensor<"f32"> | undefined;
  /** The leading dimension that the rows are reshaped by. */
  readonly lead: number;
}

export function formatOf(source: Source): ScalarFormat | "f32" {
  return source.kind === "quantized" ? source.spec.format : source.format;
}

/** The tile of a kind; undefined if it has no scales. */
export function tileOf(source: Source): Tile | undefined {
  if (source.kind === "plain") return undefined;
  return source.kind === "scaled" ? source.tile : source.spec.tile;
}

/** The signs of the Hadamard transform of an operand along K; undefined if it is not transformed. */
export function transformOf(source: Source, direction: Direction): number | undefined {
  const transformed = source.kind === "quantized" && source.spec.rht && direction === "columnwise";
  return transformed ? source.spec.rhtSigns : undefined;
}

/** The blocks of a kind: the scale's type, and the lines and columns that share a scale. Undefined without block scales. */
export function blocksOf(source: Source) {
  const tile = tileOf(source);
  if (source.kind === "plain" || tile === undefined || isTensorWide(tile) || isLineWide(tile))
    return undefined;
  const [lines, length] = tileSize(tile);
  if (source.kind === "scaled") return { format: "f32" as const, lines, length };
  const { scale: format, replicates } = BLOCK_FORMATS[source.spec.quantizer];
  return { format, lines: replicates ? 1 : lines, length };
}

/** The properties of an operand that determine the datapath. */
export function multiplied({ source, scales }: OperandCase): FactorType {
  const powers = (): boolean =>
    scales?.codes.every((bits) => bits > 0 && Number.isInteger(Math.log2(fromBits(bits)))) === true;
  return multipliedAs(source, powers);
}

/** The properties of a kind of operand. `powers` tells whether all scales of the caller are powers of two. */
export function multipliedAs(source: Source, powers: () => boolean): FactorType {
  const format = formatOf(source);
  const blocks = blocksOf(source);
  if (!blocks) return { format };
  const isPow2 = source.kind === "quantized" ? source.spec.pow2Scales : powers();
  return { format, scales: { ...blocks, pow2: blocks.format === "e8m0" || isPow2 } };
}

/** The shape of the stored tensor. */
export function storedShape({ codes, lead }: OperandCase, direction: Direction): Shape {
  const [lines, depth] = codes.matrix;
  const [rows, columns] = direction === "rowwise" ? [lines, depth] : [depth, lines];
  return rows % lead === 0 && lead > 1 ? [lead, rows / lead, columns] : [rows, columns];
}

/** The operand in a backend's memory, with its lines along the rows or along the columns. */
export function uploadOperand(backend: Backend, operand: OperandCase, direction: Direction): GemmInput {
  const { source, codes, scales, amax } = operand;
  const shape = storedShape(operand, direction);
  if (source.kind === "quantized") {
    const parts = { ...storedCopy(operand, direction), amax };
    return uploadQuantized(backend, source.spec, shape, direction, source.scaleLayout, parts);
  }
  const { dtype } = codes;
  const stored = direction === "rowwise" ? codes : turned(codes);
  const data = upload(backend, fromCodes(dtype, shape, stored.codes));
  if (source.kind === "plain" || !scales) return data;
  const scaleInv = upload(backend, fromCodes("f32", scales.shape, scales.codes));
  return { data, scaleInv, tile: source.tile };
}

/** The transpose of a matrix. */
export function turned<D extends PlainTensor["dtype"]>(x: PlainTensor<D>): PlainTensor<D> {
  const [rows, columns] = x.matrix;
  const { codes } = x;
  const at = (_: unknown, i: number): number => codes[(i % rows) * columns + Math.floor(i / rows)] as number;
  return fromCodes(x.dtype, [columns, rows], Array.from({ length: rows * columns }, at));
}

/** The codes and logical scales of a copy in this direction. */
function logicalCopy({ source, codes, scales }: OperandCase, direction: Direction) {
  if (source.kind !== "quantized" || !scales) throw new Error("a quantized operand has a spec and scales");
  const [lines, depth] = codes.matrix;
  const columnwise = direction === "columnwise";
  const spec = oracleSpec(source.spec);
  const tiling = copyTiling(spec, direction, columnwise ? [depth, lines] : [lines, depth]);
  const perTensor = source.spec.tile === "tensor";
  return {
    spec: source.spec,
    scaleLayout: source.scaleLayout,
    codes: columnwise && !tiling.codesTransposed ? turned(codes) : codes,
    scales: columnwise && !tiling.scalesTransposed && !perTensor ? turned(scales) : scales,
    matrix: columnwise ? ([depth, lines] as const) : ([lines, depth] as const),
  };
}

function storedCopy(operand: OperandCase, direction: Direction) {
  const { spec, scaleLayout, codes, scales, matrix } = logicalCopy(operand, direction);
  const logical = { values: Array.from(scales.codes), shape: scales.matrix };
  const { values } = layOut(logical, spec, direction, scaleLayout);
  return { data: codes, scaleInv: scaleTensor(values, spec, matrix, direction, scaleLayout) };
}

/** The f32 values of codes. */
function valuesOf(codes: Iterable<number>, format: ScalarFormat | "f32" | "ue4m3"): number[] {
  const layout: ScalarLayout | undefined =
    format === "f32"
      ? undefined
      : format === "ue4m3"
        ? { ...SCALAR_FORMATS.e4m3, signed: false }
        : SCALAR_FORMATS[format];
  if (!layout) return Array.from(codes, fromBits);
  const width = 2 ** (layout.exponentBits + layout.mantissaBits + (layout.signed ? 1 : 0));
  const values = new Map<number, number>();
  return Array.from(codes, (code) => {
    const value = values.get(code) ?? decode(code % width, layout);
    values.set(code, value);
    return value;
  });
}

/** The exponents of the smallest normal scales. */
const SCALE_MIN_EXPONENTS = { e8m0: -127, e4m3: -6, ue5m3: -14 };

/** The operand in the oracle's form; the sign bit of NVFP4's scales is cleared. */
export function oracleOperand({ source, codes, scales }: OperandCase): OracleOperand {
  const format = formatOf(source);
  const [lines, depth] = codes.matrix;
  const values = valuesOf(codes.codes, format);
  const blocks = blocksOf(source);
  const operand = {
    lines: Array.from({ length: lines }, (_, i) => values.slice(i * depth, (i + 1) * depth)),
    minExponent: format === "f32" ? -126 : 1 - SCALAR_FORMATS[format].bias,
  };
  if (!blocks || !scales) return operand;
  const factors = valuesOf(scales.codes, blocks.format === "e4m3" ? "ue4m3" : blocks.format);
  const across = scales.matrix[1];
  return {
    ...operand,
    scaleMinExponent: blocks.format === "f32" ? -127 : SCALE_MIN_EXPONENTS[blocks.format],
    scale: (line, k) =>
      factors[Math.floor(line / blocks.lines) * across + Math.floor(k / blocks.length)] as number,
  };
}

/** The rows of the stored tensor as f32 values. */
export function storedRows(operand: OperandCase, direction: Direction): number[][] {
  const { source, codes, amax } = operand;
  const [rows, columns] = direction === "rowwise" ? codes.matrix : [codes.matrix[1], codes.matrix[0]];
  const cut = (values: readonly number[]): number[][] =>
    Array.from({ length: rows }, (_, i) => values.slice(i * columns, (i + 1) * columns));
  if (source.kind !== "quantized") {
    const stored = direction === "rowwise" ? codes : turned(codes);
    return cut(valuesOf(stored.codes, formatOf(source)));
  }
  const { spec, ...copy } = logicalCopy(operand, direction);
  const plain = {
    codes: Uint8Array.from(copy.codes.codes),
    shape: copy.codes.matrix,
    scale: Array.from(copy.scales.codes),
    scaleShape: copy.scales.shape,
    ...(amax ? { amax: amax.codes[0] as number, amaxes: Array.from(amax.codes) } : {}),
  };
  return cut(Array.from(dequantize(plain, direction, oracleSpec(spec)), fromBits));
}
