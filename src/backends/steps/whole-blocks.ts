/**
 * Quantizes a matrix whose columns do not consist of whole blocks, with kernels that require whole blocks: extends the matrix by
 * rows of zeros, and copies the first rows of the result to the rowwise copy.
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

/** The functions of a backend that quantizes matrices of whole blocks. */
export interface WholeBlocks {
  /** Returns x extended by rows of zeros to `rows` rows, as a tensor that the open scope disposes of. */
  readonly zeroFilled: (x: Tensor<WideDType>, rows: number) => Tensor<WideDType>;
  /** Quantizes a matrix whose columns consist of whole blocks. */
  readonly quantize: (args: QuantizeArgs) => void;
}

/** Quantizes a matrix of any number of rows. */
export function quantizeWholeBlocks(args: QuantizeArgs, { zeroFilled, quantize }: WholeBlocks): void {
  const { x, spec, part, rowwise, noop } = args;
  const [rows] = asMatrix(x.shape);
  const blockedCount = blockedRows(spec, rows);
  if (blockedCount === rows) {
    quantize(args);
    return;
  }
  using _scope = new Scope();
  const extended = rowwise && extendedCopy(args, rowwise, blockedCount);
  if (rowwise && extended && noop) copyMembers(rowwise, extended);
  quantize({
    ...args,
    x: zeroFilled(x, blockedCount),
    part: part && { ...part, rows: blockedRows(spec, part.rows) },
    rowwise: extended,
    randomBits: args.randomBits && extendedBits(args.randomBits, blockedCount * asMatrix(x.shape)[1]),
  });
  if (rowwise && extended) copyRows(args, extended, rowwise);
}

/**
 * The answer of a backend that quantizes in this way to whether it supports a quantization. If the rows of zeros would get scales
 * in the padding of the layout, scales are laid out after the kernel. This later step would ignore the flag `noop`, which only
 * the kernel reads.
 */
export function supportsWholeBlocks({ x, spec, rowwise, noop }: QuantizeArgs): Support {
  const [rows] = asMatrix(x.shape);
  if (!noop || !rowwise || rows === blockedRows(spec, rows) || !scalesPadding({ spec }, rowwise))
    return EXACT;
  return {
    ok: false,
    reason: `a noop flag does not go with ${rowwise.geometry.layout} scales of ${spec.tile} tiles that ${rows} rows do not fill; use logical scales, or pad to ${blockedRows(spec, rows)} rows`,
  };
}

/**
 * Whether the rows of zeros would get scales in the padding of the layout: as part of a tile that begins inside the matrix, or
 * under a rule that scales blocks of zeros.
 */
function scalesPadding({ spec }: Pick<QuantizeArgs, "spec">, { geometry }: QuantizedCopy): boolean {
  return (isSquare(spec.tile) || scalesZeros(spec.scaleRule)) && geometry.layout !== "logical";
}

/**
 * Creates memory for the rowwise copy of the matrix extended to `rows` rows. It shares the amax of `rowwise`, unless each row
 * has its own amax.
 */
function extendedCopy(args: QuantizeArgs, rowwise: QuantizedCopy, rows: number): QuantizedCopy {
  const { spec, x } = args;
  const layout = scalesPadding(args, rowwise) ? "logical" : rowwise.geometry.layout;
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

function copyRows(args: QuantizeArgs, extended: QuantizedCopy, rowwise: QuantizedCopy): void {
  if (!scalesPadding(args, rowwise)) {
    copyMembers(extended, rowwise);
    return;
  }
  const { spec, x } = args;
  copyFirst(extended.data, rowwise.data);
  const from = copyGeometry(spec, asMatrix(x.shape), "rowwise", "logical");
  const scales = extended.scaleInv.view(0, from.scaleShape);
  runOn(x.backend, "relayout", { x: scales, from, out: rowwise.scaleInv, to: rowwise.geometry });
}

/**
 * Returns the random bits in a tensor of `count` elements; the remaining elements are uninitialized. The open scope disposes of
 * it.
 */
function extendedBits(words: Tensor<"u32">, count: number): Tensor<"u32"> {
  const out = new Tensor(words.backend, "u32", [count]);
  copyFirst(words, out);
  return out;
}

function copyMembers(from: QuantizedCopy, to: QuantizedCopy): void {
  copyFirst(from.data, to.data);
  copyFirst(from.scaleInv, to.scaleInv);
  if (from.amax && to.amax && from.amax !== to.amax) copyFirst(from.amax, to.amax);
}

/** Copies bytes, as many as the smaller tensor has. */
function copyFirst(from: Tensor, to: Tensor): void {
  const bytes = Math.min(from.byteLength, to.byteLength);
  if (bytes > 0) memoryOfTensor(to).copy(to.address, from.address, bytes);
}
