/**
 * Quantization of a matrix whose columns do not consist of whole blocks, by kernels that take only whole blocks: rows of zeros
 * are appended to the matrix, and the rowwise copy takes the first rows of the result.
 */

import { blockedRows, isSquare } from "../../formats/block.js";
import { scalesZeros } from "../../formats/scale-rules.js";
import { copyGeometry } from "../../tensor/geometry.js";
import type { QuantizedCopy } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { memoryOfTensor, Tensor } from "../../tensor/tensor.js";
import { EXACT, type Support } from "../backend.js";
import type { QuantizeArgs } from "../ops.js";
import { runOn } from "../run.js";

/** What a backend has for matrices of whole blocks. */
export interface WholeBlocks {
  /** Returns x with rows of zeros below, `rows` in all, as a tensor that the open scope disposes of. */
  readonly zeroFilled: (x: Tensor<WideDType>, rows: number) => Tensor<WideDType>;
  /** Quantizes a matrix whose columns consist of whole blocks. */
  readonly quantize: (args: QuantizeArgs) => void;
}

/** Quantizes a matrix of any number of rows. */
export function quantizeWholeBlocks(args: QuantizeArgs, { zeroFilled, quantize }: WholeBlocks): void {
  const { x, spec, part, rowwise, noop } = args;
  const [rows] = asMatrix(x.shape);
  const blocked = blockedRows(spec, rows);
  if (blocked === rows) {
    quantize(args);
    return;
  }
  using _scope = new Scope();
  const all = rowwise && wholeCopy(args, rowwise, blocked);
  if (rowwise && all && noop) copyMembers(rowwise, all);
  quantize({
    ...args,
    x: zeroFilled(x, blocked),
    part: part && { ...part, rows: blockedRows(spec, part.rows) },
    rowwise: all,
    randomBits: args.randomBits && filled(args.randomBits, blocked * asMatrix(x.shape)[1]),
  });
  if (rowwise && all) takeRows(args, all, rowwise);
}

/**
 * What a backend that quantizes in this way says of a quantization. Scales that the kernel would write where their layout has
 * padding are laid out after the kernel, which is too late for a flag that the kernel reads.
 */
export function supportsWholeBlocks({ x, spec, rowwise, noop }: QuantizeArgs): Support {
  const [rows] = asMatrix(x.shape);
  if (!noop || !rowwise || rows === blockedRows(spec, rows) || !laysOutScales({ spec }, rowwise))
    return EXACT;
  return {
    ok: false,
    reason: `a noop flag does not go with ${rowwise.geometry.layout} scales of ${spec.tile} tiles that ${rows} rows do not fill; use logical scales, or pad to ${blockedRows(spec, rows)} rows`,
  };
}

/**
 * Whether the lines of padding would have scales: those of a tile whose first lines are inside of the matrix, or of blocks of
 * zeros.
 */
function laysOutScales({ spec }: Pick<QuantizeArgs, "spec">, { geometry }: QuantizedCopy): boolean {
  return (isSquare(spec.tile) || scalesZeros(spec.scaleRule)) && geometry.layout !== "logical";
}

/**
 * Creates the rowwise copy of the matrix with `rows` rows. It has the amax of the copy that is wanted, or more amaxes where each
 * row has one.
 */
function wholeCopy(args: QuantizeArgs, rowwise: QuantizedCopy, rows: number): QuantizedCopy {
  const { spec, x } = args;
  const layout = laysOutScales(args, rowwise) ? "logical" : rowwise.geometry.layout;
  const geometry = copyGeometry(spec, [rows, asMatrix(x.shape)[1]], "rowwise", layout);
  return {
    ...rowwise,
    ...(spec.rowScaled && geometry.amaxShape
      ? { amax: new Tensor(x.backend, "f32", geometry.amaxShape) }
      : {}),
    data: new Tensor(x.backend, geometry.dataType, geometry.dataShape),
    scaleInv: new Tensor(x.backend, geometry.scaleType, geometry.scaleShape),
    geometry,
  };
}

function takeRows(args: QuantizeArgs, all: QuantizedCopy, rowwise: QuantizedCopy): void {
  if (!laysOutScales(args, rowwise)) {
    copyMembers(all, rowwise);
    return;
  }
  const { spec, x } = args;
  copyFirst(all.data, rowwise.data);
  const from = copyGeometry(spec, asMatrix(x.shape), "rowwise", "logical");
  const scales = all.scaleInv.view(0, from.scaleShape);
  runOn(x.backend, "relayout", { x: scales, from, out: rowwise.scaleInv, to: rowwise.geometry });
}

/** Returns the random bits in a tensor of `count` elements, the rest uninitialized. The open scope disposes of it. */
function filled(words: Tensor<"u32">, count: number): Tensor<"u32"> {
  const out = new Tensor(words.backend, "u32", [count]);
  copyFirst(words, out);
  return out;
}

function copyMembers(from: QuantizedCopy, to: QuantizedCopy): void {
  copyFirst(from.data, to.data);
  copyFirst(from.scaleInv, to.scaleInv);
  if (from.amax && to.amax && from.amax !== to.amax) copyFirst(from.amax, to.amax);
}

/** Copies as many bytes as both tensors have. */
function copyFirst(from: Tensor, to: Tensor): void {
  const bytes = Math.min(from.byteLength, to.byteLength);
  if (bytes > 0) memoryOfTensor(to).copy(to.address, from.address, bytes);
}
