/** Dequantization on a GPU. */

import { blockFormat, isTensorWide, scaleSpan } from "../../../formats/block.js";
import { factsOf, wordOf } from "../../../formats/derive.js";
import { tensorScaleRole } from "../../../formats/scale-rules.js";
import { Scope } from "../../../tensor/scope.js";
import { asMatrix } from "../../../tensor/shape.js";
import { memoryOfTensor, Tensor } from "../../../tensor/tensor.js";
import type { DequantizeArgs } from "../../ops.js";
import { addressOf, type Lowering, type LoweringContext, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { OUT, SCALES, SIZE } from "../shared-arguments.js";

export const DEQUANTIZE_CALLS = {
  dequantize: {
    codes: "pointer",
    word: "word",
    ...SIZE,
    transposed: "flag",
    across: "flag",
    ...SCALES,
    scaleWord: "word",
    lineShift: "count",
    blockShift: "count",
    "amax?": "pointer",
    inverse: "float",
    divides: "flag",
    rowScaled: "flag",
    ...OUT,
  },
} as const satisfies Declarations;

/** A shift that is larger than the logarithm of any size. It makes all elements share one scale. */
const ALL = 62;

/** What kernels make of the amax of the tensor, or of its scale: they multiply by it times `inverse`, or divide by it. */
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
    // a transposed copy of whole blocks is dequantized with its rows of zeros
    using _scope = new Scope();
    const whole = new Tensor(out.backend, out.dtype, [stored, columns]);
    launch(context, { ...args, out: whole });
    if (out.byteLength > 0) memoryOfTensor(out).copy(out.address, whole.address, out.byteLength);
  },
};

function launch({ addon, device }: LoweringContext, { spec, copy, out }: DequantizeArgs): void {
  const { data, direction, placement } = copy.geometry;
  const [outRows, outColumns] = asMatrix(out.shape);
  const [rows, columns] = data === "transposed" ? [outColumns, outRows] : [outRows, outColumns];
  const isWhole = isTensorWide(spec.tile);
  const [lines, length] = scaleSpan(spec);
  addon.dequantize(device, {
    codes: copy.data.address,
    word: factsOf(spec.format).word,
    rows,
    columns,
    transposed: data === "transposed",
    across: direction === "columnwise" && data === "inPlace",
    scales: copy.scaleInv.address,
    placement,
    scaleWord: wordOf(blockFormat(spec.quantizer).scale),
    lineShift: isWhole ? ALL : Math.log2(lines),
    blockShift: isWhole ? ALL : Math.min(Math.log2(length), ALL),
    amax: addressOf(copy.amax),
    ...tensorFactor(spec),
    rowScaled: spec.rowScaled,
    out: out.address,
    outType: wideOf(out),
  });
}
