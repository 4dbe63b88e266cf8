/** The copies (rowwise and columnwise) of a quantized tensor as arguments of addon calls. */
import type { Direction, QuantizedCopy } from "../../../tensor/quantized.js";
import type { QuantizeArgs } from "../../ops.js";

/** Returns a copy's codes and scales, and the layout of the scales. */
export function copyOf(copy: QuantizedCopy) {
  return { codes: copy.data, scales: { data: copy.scaleInv, placement: copy.geometry.placement } };
}

/** Returns the arguments for those copies that the call writes. */
export function copiesOf({ rowwise, columnwise }: Pick<QuantizeArgs, Direction>) {
  return { rowwise: rowwise && copyOf(rowwise), columnwise: columnwise && copyOf(columnwise) };
}

/** Returns the codes and scales of those copies that the call writes, where scales have no layout. */
export function plainCopiesOf({ rowwise, columnwise }: Pick<QuantizeArgs, Direction>) {
  return {
    rowwise: rowwise?.data,
    columnwise: columnwise?.data,
    rowwiseScaleInv: rowwise?.scaleInv,
    columnwiseScaleInv: columnwise?.scaleInv,
  };
}
