/** Dequantization on a GPU. */

import { blockFormat, isTensorWide, scaleSpan } from "../../../formats/block.js";
import { factsOf, wordOf } from "../../../formats/derive.js";
import { tensorScaleRole } from "../../../formats/scale-rules.js";
import { Scope } from "../../../tensor/scope.js";
import { asMatrix } from "../../../tensor/shape.js";
import { memoryOfTensor, Tensor } from "../../../tensor/tensor.js";
import type { DequantizeArgs } from "../../ops.js";
import type { Lowering, LoweringContext } from "../lowering.js";
import { bounded, type Declarations, reads, writes } from "../native-arguments.js";
import { SIZE, scales } from "../shared-arguments.js";

/** The logarithm of a number of codes. */
const shift = bounded({ to: 62, type: "int32_t" });

export const DEQUANTIZE_CALLS = {
  /** Dequantizes one copy of a quantized matrix. The stored codes are [rows, columns]. */
  dequantize: {
    codes: reads.bits("rows * columns", "Codes of e2m1 and int4 are packed two per byte.", "codeBits(word)"),
    /** The format word of the codes. */
    word: "word",
    ...SIZE,
    packing: {
      condition: "codeBits(word) == 8 || columns % 2 == 0",
      message: "columns is odd, but two codes share a byte",
    },
    /** Whether the output is [columns, rows]. */
    transposed: "flag",
    /**
     * Whether blocks lie along the columns of the stored matrix, so that a line of scales belongs to columns; otherwise they
     * lie along rows. Cannot be combined with `transposed`, nor with packed codes.
     */
    across: "flag",
    scales: scales("scaleWord == 0 ? 4 : 1"),
    /** 0 for f32 scales, else the format word of e8m0, e4m3 or ue5m3. */
    scaleWord: "word",
    /**
     * A line of scales belongs to 2^lineShift rows (columns if `across`), and a block has 2^blockShift codes along the line.
     * lineShift is 0 or at least 3; blockShift is at least 3. A shift of 62 means one line or block for the whole dimension.
     */
    lineShift: shift,
    blockShift: shift,
    lineCover: {
      condition: "coverCodes(scales.lines, across ? columns : rows, lineShift)",
      message: "lines of scales do not cover the codes",
    },
    blockCover: {
      condition: "coverCodes(scales.blocks, across ? rows : columns, blockShift)",
      message: "blocks of scales do not cover the codes",
    },
    /**
     * If scales are f32, the factor of a code is its scale; otherwise it is (value of the scale * amax) * inverse, where a null
     * amax means 1. With `divides`, it is value of the scale / amax; this requires e2m1 codes with e4m3 scales. With `rowScaled`,
     * each stored row has its own amax; this requires the same types and excludes `divides`.
     */
    "amax?": reads.f32("rowScaled ? rows : 1"),
    rowScaled: "flag",
    inverse: "float",
    divides: "flag",
    out: writes.wide("rows * columns"),
  },
} as const satisfies Declarations;

/** A shift that is larger than the logarithm of any size. It makes all elements share one scale. */
const ALL = 62;

/** Returns how kernels apply the amax or the scale of the tensor: they multiply by it and by `inverse`, or divide by it. */
function tensorFactor({ scaleRule, e4m3Max }: DequantizeArgs["spec"]) {
  const role = tensorScaleRole(scaleRule);
  return { inverse: role === "amax" ? 1 / (6 * e4m3Max) : 1, divides: role === "divisor" };
}

export const dequantize: Lowering<"dequantize"> = {
  run(context, args) {
    const { copy, out } = args;
    const { data, dataShape } = copy.geometry;
    const [rows, columns] = asMatrix(out.shape);
    const stored = data === "transposed" ? (dataShape[1] as number) : rows;
    if (stored === rows) {
      launch(context, args);
      return;
    }
    // a transposed copy that is padded to whole blocks is dequantized with its rows of zeros
    using _scope = new Scope();
    const padded = new Tensor(out.backend, out.dtype, [stored, columns]);
    launch(context, { ...args, out: padded });
    if (out.byteLength > 0) memoryOfTensor(out).copy(out.address, padded.address, out.byteLength);
  },
};

function launch({ addon, device }: LoweringContext, { spec, copy, out }: DequantizeArgs): void {
  const { data, direction, placement } = copy.geometry;
  const [outRows, outColumns] = asMatrix(out.shape);
  const [rows, columns] = data === "transposed" ? [outColumns, outRows] : [outRows, outColumns];
  const isWhole = isTensorWide(spec.tile);
  const [lines, length] = scaleSpan(spec);
  addon.dequantize(device, {
    codes: copy.data,
    word: factsOf(spec.format).word,
    rows,
    columns,
    transposed: data === "transposed",
    across: direction === "columnwise" && data === "inPlace",
    scales: { data: copy.scaleInv, placement },
    scaleWord: wordOf(blockFormat(spec.quantizer).scale),
    lineShift: isWhole ? ALL : Math.log2(lines),
    blockShift: isWhole ? ALL : Math.min(Math.log2(length), ALL),
    amax: copy.amax,
    ...tensorFactor(spec),
    rowScaled: spec.rowScaled,
    out,
  });
}
