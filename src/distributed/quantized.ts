/** Quantized tensors whose rows lie on several ranks: the whole of them, from codes and scales as they are. */
import { isDirectionless, isTensorWide } from "../formats/block.js";
import { relayoutScales, transpose } from "../ops/layout/layout.js";
import { copyGeometry } from "../tensor/geometry.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizedCopy,
  type QuantizedTensor,
  type QuantizerOps,
  type QuantizeSpec,
  trustedQuantized,
  type Usage,
} from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix, type Shape } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { ProcessGroup } from "./group.js";

/**
 * The tensor of which every rank has as many rows, with the copies of `usage`: what a quantizer makes of the whole, where the
 * shards were quantized as its shards. Codes and scales are sent, without padding; a scale or an amax of the whole tensor is
 * not, since all ranks have the same. A columnwise copy that follows from the rowwise one is derived behind the gather. Copies
 * in COMPACT become GEMM_READY. `t` has a copy of each direction that is not derived. `ops` is the quantizer's.
 */
export function gatherQuantized(
  group: ProcessGroup,
  t: QuantizedTensor,
  usage: Usage,
  ops: QuantizerOps,
): QuantizedTensor {
  using scope = new Scope();
  const derives = isDirectionless(t.spec);
  const sent = (direction: Direction): boolean => (derives ? direction === "rowwise" : usage[direction]);
  const [own, ...rest] = t.shape;
  const shape = [(own as number) * group.size, ...rest];
  const copies = DIRECTIONS.map((direction) =>
    sent(direction) ? gatherCopy(group, t, direction, shape) : undefined,
  );
  const whole = withLayout(madeOf(t, t.spec, shape, ops, copies), ops);
  const ready = whole.spec.compact ? gemmReady(whole, ops) : whole;
  return scope.keep(derives ? ready.updateUsage(usage) : ready);
}

/** A copy of the whole, its scales in the logical layout. */
function gatherCopy(
  group: ProcessGroup,
  t: QuantizedTensor,
  direction: Direction,
  shape: Shape,
): QuantizedCopy {
  const { data, scaleInv, amax } = t.copy(direction);
  const geometry = copyGeometry(t.spec, asMatrix(shape), direction, "logical");
  const columnwise = direction === "columnwise";
  const rows = (x: Tensor, transposed: boolean): Tensor => {
    if (!columnwise || !transposed) return group.allGather(x.reshape(asMatrix(x.shape)));
    return transpose(group.allGather(transpose(x)));
  };
  const codes = rows(data, geometry.data === "transposed").reshape(geometry.dataShape);
  const scales = isTensorWide(t.spec.tile)
    ? scaleInv.reshape(scaleInv.shape)
    : rows(relayoutScales(t, direction, "logical"), geometry.scale === "transposed");
  const made = { data: codes, scaleInv: scales.reshape(geometry.scaleShape), geometry };
  return amax ? { ...made, amax: amax.reshape(amax.shape) } : made;
}

function madeOf(
  { dtype, scaleLayout }: Pick<QuantizedTensor, "dtype" | "scaleLayout">,
  spec: QuantizeSpec,
  shape: Shape,
  ops: QuantizerOps,
  [rowwise, columnwise]: readonly (QuantizedCopy | undefined)[],
): QuantizedTensor {
  return trustedQuantized({ spec, shape, dtype, scaleLayout, ops, rowwise, columnwise });
}

/** Copies whose scales lie as logical ones, laid out as the tensor says. */
function withLayout(t: QuantizedTensor, ops: QuantizerOps): QuantizedTensor {
  const { scaleLayout } = t;
  if (scaleLayout === "logical") return t;
  const copies = DIRECTIONS.map((direction): QuantizedCopy | undefined => {
    const copy = t[direction];
    const geometry = copy && copyGeometry(t.spec, asMatrix(t.shape), direction, scaleLayout);
    return geometry && { ...copy, scaleInv: relayoutScales(t, direction, scaleLayout), geometry };
  });
  return madeOf(t, t.spec, t.shape, ops, copies);
}

/** The same codes and scales as GEMMs take them: those of the columnwise copy transposed (numerics.md §3.3). */
function gemmReady(t: QuantizedTensor, ops: QuantizerOps): QuantizedTensor {
  const spec = Object.freeze({ ...t.spec, compact: false });
  const copies = DIRECTIONS.map((direction): QuantizedCopy | undefined => {
    const copy = t[direction];
    if (!copy) return undefined;
    const geometry = copyGeometry(spec, asMatrix(t.shape), direction, "logical");
    if (direction === "rowwise") return { ...copy, geometry };
    return { data: transpose(copy.data), scaleInv: transpose(copy.scaleInv), geometry };
  });
  return withLayout(madeOf(t, spec, t.shape, ops, copies), ops);
}
