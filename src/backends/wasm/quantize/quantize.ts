/** Quantization on the reference. Each copy takes one pass over the source. */
import { blockedRows, isLineWide, isTensorWide, scaleSpan, tileSize } from "../../../formats/block.js";
import { ELEMENT_SCALING, OVERFLOW, ROUNDING, SCALE_RULE } from "../../../formats/contract.gen.js";
import { FLT_MAX, factsOf } from "../../../formats/derive.js";
import { scalingBits } from "../../../formats/element-scalings.js";
import { tensorScaleRole } from "../../../formats/scale-rules.js";
import type { Direction, QuantizedCopy } from "../../../tensor/quantized.js";
import { Scope } from "../../../tensor/scope.js";
import { asMatrix, byteLength, storageBits, type WideDType } from "../../../tensor/shape.js";
import { Tensor } from "../../../tensor/tensor.js";
import type { MatrixPart, QuantizeArgs } from "../../ops.js";
import { amaxOf } from "../cast/cast.js";
import { layOutScales, transposeCodes } from "../layout/layout.js";
import { drawsOf, type Lowering, type LoweringContext, sourceOf, wideOf } from "../lowering.js";

/**
 * Returns the rows and columns of x, or [0, 0] if x is empty: the other size of an empty matrix may exceed what kernels can
 * count.
 */
function sizeOf(x: Tensor): readonly [rows: number, columns: number] {
  return x.size === 0 ? [0, 0] : asMatrix(x.shape);
}

/** The number of rows that a transposing pass reads at a time. */
const STRIP = 16;

/** The part arguments of a matrix that is not a part of a larger one. */
const NO_PART = {
  pitch: 0,
  firstLine: 0,
  lineWidth: 0,
  lineStride: 0,
  firstElement: 0,
  width: 0,
  stride: 0,
} as const;

export const quantize: Lowering<"quantize"> = {
  run(context, args) {
    if (args.noop && args.noop.dataSync()[0] === 1) return;
    if (isTensorWide(args.spec.tile)) quantizeTensor(context, args);
    else {
      if (args.rowwise) quantizeCopy(context, args, "rowwise", args.rowwise);
      if (args.columnwise) quantizeColumnwise(context, args, args.columnwise);
    }
  },
};

/** Quantizes the columnwise copy. If the columns do not consist of whole blocks, the matrix is extended by rows of zeros. */
function quantizeColumnwise(context: LoweringContext, args: QuantizeArgs, copy: QuantizedCopy): void {
  const [rows] = asMatrix(args.x.shape);
  const blockedCount = blockedRows(args.spec, rows);
  if (blockedCount === rows) {
    quantizeCopy(context, args, "columnwise", copy);
    return;
  }
  using _scope = new Scope();
  const part = args.part && { ...args.part, rows: blockedRows(args.spec, args.part.rows) };
  quantizeCopy(context, { ...args, x: withRows(context, args.x, blockedCount), part }, "columnwise", copy);
}

/** Returns x extended by rows of zeros to `rows` rows: x itself, or a tensor that the open scope disposes of. */
export function withRows<X extends Tensor<WideDType>>({ heap }: LoweringContext, x: X, rows: number): X {
  const [existingRows, columns] = asMatrix(x.shape);
  if (rows === existingRows) return x;
  const out = new Tensor(x.backend, x.dtype, [rows, columns]) as X;
  const [{ address, byteLength: bytes }, missing] = [out, out.byteLength - x.byteLength];
  if (bytes === 0) return out;
  heap.copy(address, x.address, x.byteLength);
  heap.write(address + x.byteLength, new Uint8Array(missing));
  return out;
}

/**
 * Quantizes with one scale per tensor: the elements are encoded once, and the codes are transposed for the columnwise copy
 * (numerics.md §2.1).
 */
function quantizeTensor(context: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, rowwise, columnwise } = args;
  const [rows, columns] = sizeOf(x);
  const { stored, factor } = tensorScale(context, args);
  const scaling = scalingBits(spec.elementScaling);
  const codes = (address: number): void => {
    const job = { total: x.size, grain: 64 };
    const from = { dst: address, word: factsOf(spec.format).word, ...sourceOf(x) };
    if (scaling === 0) {
      const policy = { rounding: ROUNDING.tiesToEven, overflow: OVERFLOW.saturate };
      context.pool.run("encode", job, { scale: factor, ...policy, draws: drawsOf(), ...from });
    } else context.pool.run("encodeComputed", job, { scaling, factor, ...from });
  };
  if (rowwise) codes(rowwise.data.address);
  if (columnwise) {
    const bits = storageBits(spec.format);
    const from = (source: number): void =>
      transposeCodes(context, source, rows, columns, bits, columnwise.data.address);
    if (rowwise) from(rowwise.data.address);
    else
      context.withTemporary((x.size * bits) / 8, (address) => {
        codes(address);
        from(address);
      });
  }
  for (const copy of [rowwise, columnwise]) copy?.scaleInv.write(Float32Array.of(stored));
}

/** The scale of a tensor: the stored value, and the number that elements are multiplied or divided by. */
interface TensorScale {
  readonly stored: number;
  readonly factor: number;
}

function tensorScale(
  context: LoweringContext,
  { x, spec, scale, amax, amaxRecord }: QuantizeArgs,
): TensorScale {
  if (amaxRecord) {
    const recorded = amaxRecord.dataSync()[0] as number;
    amaxRecord.write(Float32Array.of(Math.max(recorded, amaxOf(context, x))));
  }
  if (scale) return byMultiplier(scale.dataSync()[0] as number);
  const largest = amax ? (amax.dataSync()[0] as number) : amaxOf(context, x);
  const { max } = factsOf(spec.format);
  const rule = SCALE_RULE[spec.scaleRule];
  const about = { amax: largest, max, epsilon: spec.amaxEpsilon };
  if (rule === SCALE_RULE.f32) {
    const pow2 = Number(spec.pow2Scales);
    return byMultiplier(context.pool.call("scaleFromAmax", { pow2, overflow: FLT_MAX, ...about }));
  }
  const stored = context.pool.call("quotientScale", { rule, type: wideOf(x), ...about });
  const divides = (scalingBits(spec.elementScaling) & ELEMENT_SCALING.divides) !== 0;
  return { stored, factor: divides ? stored : 1 / stored };
}

function byMultiplier(factor: number): TensorScale {
  return { stored: 1 / factor, factor };
}

/**
 * Quantizes one copy of a block-scaled tensor. The scales are computed in the logical layout and then converted to the layout
 * of the copy.
 */
function quantizeCopy(
  context: LoweringContext,
  args: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy,
): void {
  const { geometry, scaleInv } = copy;
  // A matrix without scales has zero rows or zero columns. The other dimension may exceed what the layout kernels can count, so
  // they are not called.
  if (geometry.layout === "logical" || scaleInv.byteLength === 0) {
    quantizeBlocks(context, args, direction, copy, scaleInv.address);
    return;
  }
  context.withTemporary(byteLength(geometry.scaleType, geometry.logicalScale), (scales) => {
    quantizeBlocks(context, args, direction, copy, scales);
    layOutScales(context, geometry, scales, scaleInv.address);
  });
}

function quantizeBlocks(
  context: LoweringContext,
  args: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy,
  scales: number,
): void {
  const { spec } = args;
  const { pool } = context;
  const [rows, columns] = sizeOf(args.x);
  const { data, scale } = copy.geometry;
  const [tileRows, block] = tileSize(spec.tile);
  if (direction === "columnwise" && data === "inPlace") {
    const tile = { tileRows: block, tileColumns: tileRows, sharedScales: false };
    const source = { rows, columns, transposed: false, ...tile };
    const task = { dst: copy.data.address, scales, ...taskOf(args, direction, source, NO_AMAX) };
    pool.run("quantizeColumns", { total: rows, grain: block, weight: columns }, task);
    return;
  }
  const transposed = data === "transposed";
  const [lines, length] = transposed ? [columns, rows] : [rows, columns];
  const isLine = isLineWide(spec.tile);
  // without elements nothing runs, and all amaxes are 0
  if (copy.amax && spec.rowScaled && args.x.size === 0) copy.amax.write(new Float32Array(copy.amax.size));
  const source = {
    rows: lines,
    columns: length,
    transposed,
    tileRows,
    tileColumns: isLine ? 0 : block,
    sharedScales: scaleSpan(spec)[0] > 1,
  };
  const task = taskOf(args, direction, source, amaxOfCopy(context, args, direction, copy));
  const run = (to: number): void => {
    const grain = Math.max(tileRows, transposed ? STRIP : 1);
    const job = { total: lines, grain, weight: length };
    pool.run(isLine ? "quantizeLines" : "quantizeRows", job, { dst: copy.data.address, scales: to, ...task });
  };
  if (!transposed || scale === "transposed") run(scales);
  else {
    const blocks = length / block;
    context.withTemporary(lines * blocks, (placed) => {
      run(placed);
      transposeCodes(context, placed, lines, blocks, 8, scales);
    });
  }
}

interface TileShape {
  readonly tileRows: number;
  readonly tileColumns: number;
  readonly sharedScales: boolean;
}

/** The source of a quantization, and the shape of its tiles. */
interface TiledSource extends TileShape {
  readonly rows: number;
  readonly columns: number;
  readonly transposed: boolean;
}

/** The amax of a copy: the amax of the tensor (`globalAmax`), or the address of the amaxes of lines. */
interface CopyAmax {
  readonly globalAmax: number;
  readonly lineAmaxes: number;
  /** Whether the copy has the options of NVFP4. */
  readonly hasLevels: boolean;
}

const NO_AMAX: CopyAmax = { globalAmax: 0, lineAmaxes: 0, hasLevels: false };

function amaxOfCopy(
  context: LoweringContext,
  args: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy,
): CopyAmax {
  if (!copy.amax) return NO_AMAX;
  if (args.spec.rowScaled) return { globalAmax: 0, lineAmaxes: copy.amax.address, hasLevels: true };
  return { globalAmax: globalAmax(context, args, direction, copy), lineAmaxes: 0, hasLevels: true };
}

/** Returns all fields of a quantization task except the addresses of the results. */
function taskOf(
  { x, spec, random, part, randomBits, randomBitsColumnwise }: QuantizeArgs,
  direction: Direction,
  source: TiledSource,
  { globalAmax, lineAmaxes, hasLevels }: CopyAmax,
) {
  const words = direction === "rowwise" ? randomBits : randomBitsColumnwise;
  const isStochastic = words !== undefined || spec.stochastic;
  const draws = spec.stochastic ? drawsOf(random, direction === "rowwise" ? 0 : 1) : drawsOf();
  const scale = {
    rule: SCALE_RULE[spec.fourOverSix === "none" ? spec.scaleRule : "fourOverSix"],
    word: factsOf(spec.format).word,
    pow2: spec.pow2Scales,
    epsilon: spec.amaxEpsilon,
    globalAmax,
    e4m3Max: hasLevels ? spec.e4m3Max : 0,
    squared: hasLevels && spec.fourOverSix === "mse",
    scaling: scalingBits(spec.elementScaling),
  };
  return {
    src: x.address,
    srcType: wideOf(x),
    ...source,
    scale,
    draws,
    part: spec.stochastic && part && !words ? partOf(part, source) : NO_PART,
    limit: spec.amaxLimit,
    lineAmaxes,
    transforms: hasLevels && spec.rht && direction === "columnwise",
    signMask: spec.rhtSigns,
    rounding: isStochastic ? ROUNDING.stochastic : ROUNDING.tiesToEven,
    words: words?.address ?? 0,
  };
}

/**
 * Describes to the kernel which line and elements of the larger matrix each line of a copy corresponds to. Lines are the rows of
 * the codes in memory.
 */
function partOf(part: MatrixPart, { rows, columns, transposed }: Omit<TiledSource, keyof TileShape>) {
  const { row, column, width, stride } = part;
  if (transposed)
    return {
      pitch: part.rows,
      ...{ firstLine: column, lineWidth: width, lineStride: stride },
      ...{ firstElement: row, width: columns, stride: columns },
    };
  return {
    pitch: part.columns,
    ...{ firstLine: row, lineWidth: rows, lineStride: rows },
    ...{ firstElement: column, width, stride },
  };
}

/**
 * Returns the amax of the whole tensor for one copy of NVFP4, or the scale that the scale rule computes from this amax, and
 * writes it to the copy. Returns 0 for other formats.
 */
function globalAmax(
  context: LoweringContext,
  args: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy,
): number {
  if (!copy.amax) return 0;
  const { x, spec } = args;
  const columnwise = direction === "columnwise";
  const givenAmax = columnwise ? args.amaxColumnwise : args.amax;
  const transforms = spec.rht && columnwise;
  const computeAmax = transforms ? transformedAmax : amaxOf;
  const shared = givenAmax ?? (transforms ? undefined : args.amax);
  const amax = shared ? (shared.dataSync()[0] as number) : computeAmax(context, x, spec.rhtSigns);
  const rule = SCALE_RULE[spec.scaleRule];
  const isAmax = tensorScaleRole(spec.scaleRule) === "amax";
  const stored = isAmax ? amax : context.pool.call("tensorScale", { rule, amax, type: wideOf(x) });
  copy.amax.write(Float32Array.of(stored));
  return stored;
}

/** Returns max |y|, where y is the bf16 random Hadamard transform of xᵀ. */
function transformedAmax({ pool }: LoweringContext, x: QuantizeArgs["x"], signs: number): number {
  const [rows, columns] = sizeOf(x);
  const job = { total: columns, grain: STRIP, weight: rows };
  const transposedSource = { src: x.address, rows: columns, columns: rows, transposed: true };
  const parts = pool.run("hadamardAmax", job, { signMask: signs, ...transposedSource });
  return Math.max(0, ...parts);
}
