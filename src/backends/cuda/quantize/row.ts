/** Quantization to FP8 with scales of rows and columns on a GPU: one pass for the amaxes, one for the codes of both copies. */
import { factsOf } from "../../../formats/derive.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import type { LoweringContext } from "../lowering.js";
import { type Declarations, group, scratch, writes } from "../native-arguments.js";
import { NOOP, QUANTIZED, quantizedSource, SCALING } from "./source.js";

/** A copy with `lines` lines: codes and line scales. */
const copy = (lines: string) =>
  group("RowCopy", {
    codes: writes.u8("rows * columns", "Null if the copy is not wanted."),
    scales: writes.f32(lines),
  });

export const ROW_CALLS = {
  /** The launcher returns cudaErrorInvalidValue for a format, rule or scaling that is not described below. */
  quantizeRow: {
    /** A rule with f32 scales. */
    ...QUANTIZED,
    /** The format word of a signed format of 8 bits. */
    word: "word",
    "rowwise?": copy("rows"),
    /** The copy of the transpose, [columns, rows]. */
    "columnwise?": copy("columns"),
    workspace: scratch.u32(
      "(rowwise.codes ? rows : 0) + (columnwise.codes ? columns : 0)",
      "The amaxes of rows, if there is a rowwise copy, then those of columns, if there is a columnwise one.",
    ),
    pow2: "flag",
    epsilon: "float",
    /** An upper bound of amaxes, rounded to the type of the source; 0 for no bound. */
    limit: "float",
    ...NOOP,
    ...SCALING,
  },
} as const satisfies Declarations;

export function quantizeRow({ addon, device, withTemporary }: LoweringContext, args: QuantizeArgs): void {
  const { x, spec, rowwise, columnwise } = args;
  const [rows, columns] = asMatrix(x.shape);
  if (x.size === 0) return;
  const lines = (rowwise ? rows : 0) + (columnwise ? columns : 0);
  withTemporary(4 * lines, (workspace) =>
    addon.quantizeRow(device, {
      word: factsOf(spec.format).word,
      ...quantizedSource(args),
      rowwise: rowwise && { codes: rowwise.data, scales: rowwise.scaleInv },
      columnwise: columnwise && { codes: columnwise.data, scales: columnwise.scaleInv },
      pow2: spec.pow2Scales,
      epsilon: spec.amaxEpsilon,
      limit: spec.amaxLimit,
      workspace,
    }),
  );
}
