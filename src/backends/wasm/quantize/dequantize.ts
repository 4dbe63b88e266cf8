/** Dequantization on the reference. */
import { blockFormat, isTensorWide, scaleSpan } from "../../../formats/block.js";
import { WIDE } from "../../../formats/contract.gen.js";
import { factsOf, wordOf } from "../../../formats/derive.js";
import { tensorScaleRole } from "../../../formats/scale-rules.js";
import type { QuantizedCopy } from "../../../tensor/quantized.js";
import { asMatrix, byteLength, storageBits } from "../../../tensor/shape.js";
import type { DequantizeArgs } from "../../ops.js";
import { gatherScales, transposeCodes } from "../layout/layout.js";
import type { Lowering, LoweringContext } from "../lowering.js";

/** A shift that is larger than the logarithm of any length. It makes all elements of a line share one scale. */
const WHOLE_LINE = 31;

export const dequantize: Lowering<"dequantize"> = {
  run(context, args) {
    const { spec, out } = args;
    const [rows, columns] = asMatrix(out.shape);
    const { geometry, data } = args.copy;
    if (geometry.data === "inPlace") {
      decodeCopy(context, args, [rows, columns], data.address, out.address);
      return;
    }
    const [, stored] = asMatrix(geometry.dataShape);
    if (geometry.scale === "inPlace") {
      // mxfp4 columnwise: the codes are transposed back to the orientation of their scales
      context.withTemporary(data.byteLength, (codes) => {
        transposeCodes(context, data.address, columns, stored, storageBits(spec.format), codes);
        decodeCopy(context, args, [rows, columns], codes, out.address);
      });
      return;
    }
    const bytes = byteLength(out.dtype, [stored, columns]);
    context.withTemporary(bytes, (values) => {
      decodeCopy(context, args, [columns, stored], data.address, values);
      const transposeTo = (address: number): void =>
        transposeCodes(context, values, columns, stored, storageBits(out.dtype), address);
      if (stored === rows) transposeTo(out.address);
      else
        context.withTemporary(bytes, (padded) => {
          transposeTo(padded);
          context.heap.copy(out.address, padded, out.byteLength);
        });
    });
  },
};

/** Decodes [lines, length] codes whose scales have the same orientation. */
function decodeCopy(
  context: LoweringContext,
  args: DequantizeArgs,
  [lines, length]: readonly [number, number],
  codes: number,
  to: number,
): void {
  const { spec, copy, out } = args;
  const { word } = factsOf(spec.format);
  const target = { dst: to, dstType: WIDE[out.dtype] };
  if (isTensorWide(spec.tile)) {
    const scale = copy.scaleInv.dataSync()[0] as number;
    const job = { total: lines * length, grain: 64 };
    context.pool.run("decode", job, { src: codes, word, ...target, scale });
    return;
  }
  const [tileRows, block] = scaleSpan(spec);
  const scaleWord = wordOf(blockFormat(spec.quantizer).scale);
  const factors = tensorFactors(args);
  const job = { total: lines, weight: length };
  withLogicalScales(context, copy, (scales) => {
    const commonArgs = { src: codes, word, scales, scaleWord, ...factors, columns: length, ...target };
    if (copy.geometry.blocksFirst) {
      context.pool.run("dequantizeColumns", job, { tileRows: block, ...commonArgs });
    } else {
      const blockShift = Math.min(Math.log2(block), WHOLE_LINE);
      const amaxes = spec.rowScaled ? (copy.amax?.address ?? 0) : 0;
      context.pool.run("dequantizeRows", job, { tileRows, blockShift, amaxes, ...commonArgs });
    }
  });
}

/** Returns the per-tensor factors by which block scales are multiplied and divided. */
function tensorFactors({ copy, spec }: DequantizeArgs) {
  const noFactors = { g: 1, inverse: 1, divisor: 1 };
  if (!copy.amax) return noFactors;
  const stored = spec.rowScaled ? 1 : (copy.amax.dataSync()[0] as number);
  switch (tensorScaleRole(spec.scaleRule)) {
    case "multiplier":
      return { ...noFactors, g: stored };
    case "divisor":
      return { ...noFactors, divisor: stored };
    default:
      return { ...noFactors, g: stored, inverse: Math.fround(1 / (6 * spec.e4m3Max)) };
  }
}

function withLogicalScales(
  context: LoweringContext,
  { scaleInv, geometry }: QuantizedCopy,
  body: (scales: number) => void,
): void {
  if (geometry.layout === "logical") {
    body(scaleInv.address);
    return;
  }
  context.withTemporary(byteLength(geometry.scaleType, geometry.logicalScale), (scales) => {
    gatherScales(context, geometry, scaleInv.address, scales);
    body(scales);
  });
}
