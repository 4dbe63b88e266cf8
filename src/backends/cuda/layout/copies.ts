/** The copies (rowwise and columnwise) of a quantized tensor as arguments of addon calls. */
import type { Direction, QuantizedCopy } from "../../../tensor/quantized.js";
import type { QuantizeArgs } from "../../ops.js";
import type { NativeArgs } from "../addon.js";
import { addressOf } from "../lowering.js";

/** Returns the addresses of a copy's codes and scales, and the layout of the scales. */
export function copyOf(copy: QuantizedCopy): NonNullable<NativeArgs<"quantizeMx">["rowwise"]> {
  return {
    codes: copy.data.address,
    scales: copy.scaleInv.address,
    placement: copy.geometry.placement,
  };
}

/** Returns the arguments for those copies that the call writes. */
export function copiesOf({
  rowwise,
  columnwise,
}: Omit<QuantizeArgs, "x">): Pick<NativeArgs<"quantizeMx">, Direction> {
  return { rowwise: rowwise && copyOf(rowwise), columnwise: columnwise && copyOf(columnwise) };
}

/** Returns the addresses of the codes and scales of those copies that the call writes, where scales have no layout. */
export function plainCopiesOf({ rowwise, columnwise }: Pick<QuantizeArgs, Direction>) {
  return {
    rowwise: addressOf(rowwise?.data),
    columnwise: addressOf(columnwise?.data),
    rowwiseScaleInv: addressOf(rowwise?.scaleInv),
    columnwiseScaleInv: addressOf(columnwise?.scaleInv),
  };
}
