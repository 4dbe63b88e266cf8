/** Dequantization on the reference. */
import { blockFormat, isTensorWide, tileSize } from "../../../formats/block.js";
import { WIDE } from "../../../formats/contract.gen.js";
import { factsOf, wordOf } from "../../../formats/derive.js";
import type { QuantizedCopy } from "../../../tensor/quantized.js";
import { asMatrix, byteLength, storageBits } from "../../../tensor/shape.js";
import type { DequantizeArgs } from "../../ops.js";
import { gatherScales, transposeCodes } from "../layout/layout.js";
import type { Lowering, LoweringContext } from "../lowering.js";

export const dequantize: Lowering<"dequantize"> = {
  run(context, args) {
    const { spec, out } = args;
    const [rows, columns] = asMatrix(out.shape);
    const { geometry } = args.copy;
    if (geometry.data === "inPlace") {
      decodeCopy(context, args, [rows, columns], args.copy.data.address, out.address);
    } else if (geometry.scale === "inPlace") {
      // mxfp4 columnwise: the codes are transposed back to the orientation of their scales
      context.withTemporary(args.copy.data.byteLength, (codes) => {
        transposeCodes(context, args.copy.data.address, columns, rows, storageBits(spec.format), codes);
        decodeCopy(context, args, [rows, columns], codes, out.address);
      });
    } else {
      context.withTemporary(out.byteLength, (values) => {
        decodeCopy(context, args, [columns, rows], args.copy.data.address, values);
        transposeCodes(context, values, columns, rows, storageBits(out.dtype), out.address);
      });
    }
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
  const format = blockFormat(spec.quantizer);
  const [tileRows, block] = tileSize(spec.tile);
  const scaleWord = wordOf(format.scale);
  const [g, inverse] = copy.amax
    ? [copy.amax.dataSync()[0] as number, Math.fround(1 / (6 * spec.e4m3Max))]
    : [1, 1];
  const job = { total: lines, weight: length };
  withLogicalScales(context, copy, (scales) => {
    const copied = { src: codes, word, scales, scaleWord, g, inverse, columns: length, ...target };
    if (copy.geometry.blocksFirst) {
      context.pool.run("dequantizeColumns", job, { tileRows: block, ...copied });
    } else {
      const height = format.replicates ? 1 : tileRows;
      context.pool.run("dequantizeRows", job, { tileRows: height, blockShift: Math.log2(block), ...copied });
    }
  });
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
