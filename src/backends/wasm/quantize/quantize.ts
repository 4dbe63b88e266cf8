/** Quantization on the reference: each copy is one pass over the source. */
import { blockFormat, isTensorWide, tileSize } from "../../../formats/block.js";
import { OVERFLOW, ROUNDING, SCALE_RULE, WIDE } from "../../../formats/contract.gen.js";
import { FLT_MAX, factsOf } from "../../../formats/derive.js";
import { copyGeometry } from "../../../tensor/geometry.js";
import type { Direction, QuantizedCopy } from "../../../tensor/quantized.js";
import { asMatrix, byteLength, storageBits } from "../../../tensor/shape.js";
import type { Tensor } from "../../../tensor/tensor.js";
import type { QuantizeArgs } from "../../ops.js";
import { amaxOf } from "../cast/cast.js";
import { relayoutScales, transposeCodes } from "../layout/layout.js";
import { halves, type Lowering, type LoweringContext } from "../lowering.js";

/** Rows and columns of what is quantized. Where one is zero the other counts nothing: it may be beyond what kernels count. */
function sizeOf(x: Tensor): readonly [rows: number, columns: number] {
  return x.size === 0 ? [0, 0] : asMatrix(x.shape);
}

/** Rows that a transposing pass reads at a time. */
const STRIP = 16;

export const quantize: Lowering<"quantize"> = {
  run(context, args) {
    if (args.noop && args.noop.dataSync()[0] === 1) return;
    if (isTensorWide(args.spec.tile)) quantizeTensor(context, args);
    else {
      if (args.rowwise) quantizeCopy(context, args, "rowwise", args.rowwise);
      if (args.columnwise) quantizeCopy(context, args, "columnwise", args.columnwise);
    }
  },
};

/** Per-tensor scaling: one encode, whose bytes are transposed for the columnwise copy (numerics.md §2.1). */
function quantizeTensor(context: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, rowwise, columnwise } = args;
  const [rows, columns] = sizeOf(x);
  const scale = tensorScale(context, args);
  const codes = (address: number): void => {
    const policy = [ROUNDING.tiesToEven, OVERFLOW.saturate, scale, 0, 0, 0, 0, 0];
    const head = [x.address, WIDE[x.dtype], address, factsOf(spec.format).word, ...policy];
    context.pool.run("encode", { total: x.size, grain: 64 }, (scratch) => [...head, scratch]);
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
  for (const copy of [rowwise, columnwise]) copy?.scaleInv.write(Float32Array.of(1 / scale));
}

function tensorScale(context: LoweringContext, { x, spec, scale, amax, amaxRecord }: QuantizeArgs): number {
  if (amaxRecord) {
    const recorded = amaxRecord.dataSync()[0] as number;
    amaxRecord.write(Float32Array.of(Math.max(recorded, amaxOf(context, x))));
  }
  if (scale) return scale.dataSync()[0] as number;
  const largest = amax ? (amax.dataSync()[0] as number) : amaxOf(context, x);
  const { max } = factsOf(spec.format);
  return context.exports.scaleFromAmax(largest, max, Number(spec.pow2Scales), spec.amaxEpsilon, FLT_MAX);
}

/** One copy of a block-scaled tensor; its scales are made in the logical layout, then laid out as wanted. */
function quantizeCopy(
  context: LoweringContext,
  args: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy,
): void {
  const { x, spec, scaleLayout } = args;
  const size = sizeOf(x);
  if (scaleLayout === "logical") {
    quantizeBlocks(context, args, direction, copy, copy.scaleInv.address);
    return;
  }
  const logical = copyGeometry(spec, size, direction, "logical");
  context.withTemporary(byteLength(logical.scaleType, logical.scaleShape), (scales) => {
    quantizeBlocks(context, args, direction, copy, scales);
    const { address: to } = copy.scaleInv;
    relayoutScales(context, { spec, direction, size, from: "logical", to: scaleLayout }, scales, to);
  });
}

function quantizeBlocks(
  context: LoweringContext,
  args: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy,
  scales: number,
): void {
  const { x, spec, random } = args;
  const [rows, columns] = sizeOf(x);
  const format = blockFormat(spec.quantizer);
  const { data, scale } = copyGeometry(spec, [rows, columns], direction, "logical");
  const [tileRows, block] = tileSize(spec.tile);
  const rule = SCALE_RULE[spec.fourOverSix === "none" ? format.rule : "fourOverSix"];
  const { word } = factsOf(spec.format);
  const rounding = ROUNDING[spec.stochastic ? "stochastic" : "tiesToEven"];
  const draws = [rounding, ...halves(random.seed), ...halves(random.offset), direction === "rowwise" ? 0 : 1];
  const source = [x.address, WIDE[x.dtype]];

  if (direction === "columnwise" && data === "inPlace") {
    const tile = [block, tileRows];
    const head = [
      ...source,
      rows,
      columns,
      ...tile,
      rule,
      word,
      Number(spec.pow2Scales),
      spec.amaxEpsilon,
      ...draws,
    ];
    const job = { total: rows, grain: block, weight: columns };
    context.pool.run("quantizeColumns", job, (scratch) => [...head, copy.data.address, scales, scratch]);
    return;
  }

  const transposed = data === "transposed";
  const [lines, length] = transposed ? [columns, rows] : [rows, columns];
  const global = globalAmax(context, args, direction, copy);
  const rht = spec.rht && direction === "columnwise";
  const shift = Math.log2(block);
  const shared = Number(tileRows > 1 && !format.replicates);
  const levels = [global, spec.e4m3Max, Number(spec.fourOverSix === "mse"), Number(rht), spec.rhtSigns];
  const tile = [
    Number(transposed),
    tileRows,
    shift,
    shared,
    rule,
    word,
    Number(spec.pow2Scales),
    spec.amaxEpsilon,
  ];
  const run = (to: number): void => {
    const head = [...source, lines, length, ...tile, ...levels, ...draws, copy.data.address, to];
    const grain = Math.max(tileRows, transposed ? STRIP : 1);
    context.pool.run("quantizeRows", { total: lines, grain, weight: length }, (scratch) => [
      ...head,
      scratch,
    ]);
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

/** NVFP4's per-tensor amax of one copy, which is also part of the result; 0 for formats without. */
function globalAmax(
  context: LoweringContext,
  args: QuantizeArgs,
  direction: Direction,
  copy: QuantizedCopy,
): number {
  if (!copy.amax) return 0;
  const { x, spec } = args;
  const columnwise = direction === "columnwise";
  const given = columnwise ? args.amaxColumnwise : args.amax;
  const transforms = spec.rht && columnwise;
  const own = transforms ? transformedAmax : amaxOf;
  const shared = given ?? (transforms ? undefined : args.amax);
  const value = shared ? (shared.dataSync()[0] as number) : own(context, x, spec.rhtSigns);
  copy.amax.write(Float32Array.of(value));
  return value;
}

/** max |y| of the bf16 random Hadamard transform y of xᵀ. */
function transformedAmax({ pool }: LoweringContext, x: QuantizeArgs["x"], signs: number): number {
  const [rows, columns] = sizeOf(x);
  const job = { total: columns, grain: STRIP, weight: rows };
  const parts = pool.run("hadamardAmax", job, (scratch) => [x.address, columns, rows, 1, signs, scratch]);
  return Math.max(0, ...parts);
}
