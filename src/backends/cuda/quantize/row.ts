/** Quantization to FP8 with scales of rows and columns on a GPU: one pass for the amaxes, one for the codes of both copies. */
import { factsOf } from "../../../formats/derive.js";
import { asMatrix } from "../../../tensor/shape.js";
import type { QuantizeArgs } from "../../ops.js";
import { plainCopiesOf } from "../layout/copies.js";
import type { LoweringContext } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { PLAIN_COPIES } from "../shared-arguments.js";
import { QUANTIZED, quantizedSource } from "./source.js";

export const ROW_CALLS = {
  quantizeRow: {
    ...QUANTIZED,
    word: "word",
    ...PLAIN_COPIES,
    pow2: "flag",
    epsilon: "float",
    limit: "float",
    workspace: "pointer",
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
      ...plainCopiesOf(args),
      pow2: spec.pow2Scales,
      epsilon: spec.amaxEpsilon,
      limit: spec.amaxLimit,
      workspace,
    }),
  );
}
