/** The copies that a call writes, as addon calls take them. */
import type { Direction, QuantizedCopy } from "../../../tensor/quantized.js";
import type { QuantizeArgs } from "../../ops.js";
import type { NativeArgs } from "../addon.js";

/** Codes and scales of one copy. */
export function copyOf(copy: QuantizedCopy): NonNullable<NativeArgs<"quantizeMx">["rowwise"]> {
  return {
    codes: copy.data.address,
    scales: copy.scaleInv.address,
    placement: copy.geometry.placement,
  };
}

/** The copies that are wanted. */
export function copiesOf({
  rowwise,
  columnwise,
}: Omit<QuantizeArgs, "x">): Pick<NativeArgs<"quantizeMx">, Direction> {
  return { rowwise: rowwise && copyOf(rowwise), columnwise: columnwise && copyOf(columnwise) };
}
