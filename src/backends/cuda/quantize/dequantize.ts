/** Dequantization on a GPU. */
import { blockFormat, isTensorWide, tileSize } from "../../../formats/block.js";
import { factsOf, wordOf } from "../../../formats/derive.js";
import { asMatrix } from "../../../tensor/shape.js";
import { addressOf, type Lowering, wideOf } from "../lowering.js";
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
    ...OUT,
  },
} as const satisfies Declarations;

/** A shift that is larger than the logarithm of any size. It makes all elements share one scale. */
const ALL = 62;

export const dequantize: Lowering<"dequantize"> = {
  run({ addon, device }, { spec, copy, out }) {
    const { data, dataShape, direction, placement } = copy.geometry;
    const [rows, columns] = asMatrix(dataShape);
    const format = blockFormat(spec.quantizer);
    const isWhole = isTensorWide(spec.tile);
    const [tileRows, block] = tileSize(spec.tile);
    addon.dequantize(device, {
      codes: copy.data.address,
      word: factsOf(spec.format).word,
      rows,
      columns,
      transposed: data === "transposed",
      across: direction === "columnwise" && data === "inPlace",
      scales: copy.scaleInv.address,
      placement,
      scaleWord: wordOf(format.scale),
      lineShift: isWhole ? ALL : format.replicates ? 0 : Math.log2(tileRows),
      blockShift: isWhole ? ALL : Math.log2(block),
      amax: addressOf(copy.amax),
      inverse: copy.amax ? 1 / (6 * spec.e4m3Max) : 1,
      out: out.address,
      outType: wideOf(out),
    });
  },
};
