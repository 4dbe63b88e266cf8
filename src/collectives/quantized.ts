/** Quantized tensors whose rows are divided among ranks. Gathering and slicing them preserves codes and scales exactly. */
import { isDirectionless, isTensorWide } from "../formats/block.js";
import { relayoutScales, transpose } from "../ops/layout/layout.js";
import { onSideStream } from "../ops/side-stream.js";
import { type CopyGeometry, copyGeometry } from "../tensor/geometry.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizedCopy,
  type QuantizedTensor,
  type QuantizerOps,
  type QuantizeSpec,
  ROWWISE,
  trustedQuantized,
  type Usage,
} from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix, elementCount, type Shape } from "../tensor/shape.js";
import { specText } from "../tensor/spec.js";
import { Tensor, viewOrSlice } from "../tensor/tensor.js";
import type { RowRange } from "./by-chunks.js";
import type { GatherRequest, ProcessGroup } from "./group.js";

/**
 * Gathers a quantized tensor whose rows are divided among the ranks, with the copies of `usage`. `rows`: the number of rows of
 * each rank; default: as many as on this rank. If the shards were quantized as parts of the full tensor, the result is what the
 * quantizer would return for the full tensor. Codes and scales are sent without padding. Per-tensor scales and amaxes must be
 * equal on all ranks; they are compared where ranks exchange through their hosts. A columnwise copy that can be derived from the
 * rowwise copy is derived after the gather. The data layout COMPACT becomes GEMM_READY. `t` must have each copy of `usage` that
 * cannot be derived. `ops`: the quantizer's operations. Throws `DistributedError`, as a disagreement, if the specs, the nominal
 * dtypes or the compared scales and amaxes of the ranks differ.
 */
export function gatherQuantized(
  group: ProcessGroup,
  t: QuantizedTensor,
  usage: Usage,
  ops: QuantizerOps,
  rows: readonly number[] = group.ranks.map(() => t.shape[0] as number),
): QuantizedTensor {
  using scope = new Scope();
  const { requests, assemble } = quantizedGather(t, usage, ops, rows);
  return scope.keep(assemble(group.allGatherCoalesced(requests)));
}

/** The two halves of `gatherQuantized`: the tensors to gather, and the function that assembles the result. */
export interface QuantizedGather {
  readonly requests: readonly GatherRequest[];
  /** Returns the full tensor. It may share memory with the gathered tensors, which the caller disposes of. */
  readonly assemble: (gathered: readonly Tensor[]) => QuantizedTensor;
}

/** Prepares `gatherQuantized` without exchanging anything. */
export function quantizedGather(
  t: QuantizedTensor,
  usage: Usage,
  ops: QuantizerOps,
  rows: readonly number[],
): QuantizedGather {
  const derivesColumnwise = isDirectionless(t.spec);
  const sent = (direction: Direction): boolean =>
    derivesColumnwise ? direction === "rowwise" : usage[direction];
  const shapes = rows.map((count) => [count, ...t.shape.slice(1)]);
  const shape = [rows.reduce((total, count) => total + count, 0), ...t.shape.slice(1)];
  const copies = DIRECTIONS.map((direction) =>
    sent(direction) ? planCopyGather(t, direction, { shape, shapes }) : undefined,
  );
  return {
    requests: copies.flatMap((copy) => copy?.pieces.map(({ request }) => request) ?? []),
    assemble(gathered) {
      using scope = new Scope();
      const remaining = [...gathered];
      const fullCopies = copies.map((copy) =>
        copy?.assemble(copy.pieces.map(({ toCopyLayout }) => toCopyLayout(remaining.shift() as Tensor))),
      );
      const fullTensor = withLayout(quantizedOf(t, t.spec, shape, ops, fullCopies), ops);
      const ready = fullTensor.spec.compact ? toGemmReady(fullTensor, ops) : fullTensor;
      return scope.keep(derivesColumnwise ? withUsage(ready, usage) : ready);
    },
  };
}

/**
 * Returns a tensor with the copies of `usage`, and derives the columnwise copy from the rowwise copy of `t`. The open scope owns
 * both. A per-tensor scale is shared by the two copies and not copied: a copy of this rank's scale would have to wait for work
 * that computes with it.
 */
function withUsage(t: QuantizedTensor, usage: Usage): QuantizedTensor {
  if (!isTensorWide(t.spec.tile) || !usage.columnwise) return t.updateUsage(usage);
  const rowwise = t.copy("rowwise");
  const geometry = copyGeometry(t.spec, asMatrix(t.shape), "columnwise", t.scaleLayout);
  const scaleInv = rowwise.scaleInv.reshape(geometry.scaleShape);
  const columnwise = { data: transpose(rowwise.data), scaleInv, geometry };
  return quantizedOf(t, t.spec, t.shape, t.quantizer, [usage.rowwise ? rowwise : undefined, columnwise]);
}

/** Codes or scales of a copy. */
interface Piece {
  readonly request: GatherRequest;
  /** Converts the gathered tensor to its layout in the copy. */
  readonly toCopyLayout: (gathered: Tensor) => Tensor;
}

/** The codes and scales of a copy that are gathered, and the function that assembles the full copy, with logical scales. */
function planCopyGather(
  t: QuantizedTensor,
  direction: Direction,
  { shape, shapes }: { readonly shape: Shape; readonly shapes: readonly Shape[] },
): {
  readonly pieces: readonly Piece[];
  readonly assemble: (gathered: readonly Tensor[]) => QuantizedCopy;
} {
  const { data, scaleInv, amax } = t.copy(direction);
  const geometryOf = (ofShape: Shape): CopyGeometry =>
    copyGeometry(t.spec, asMatrix(ofShape), direction, "logical");
  const geometry = geometryOf(shape);
  const geometries = shapes.map(geometryOf);
  const columnwise = direction === "columnwise";
  const subject = `codes and scales by ${specText(t.spec)}, quantized from ${t.dtype}`;
  const pieceOf = (
    x: Tensor,
    transposed: boolean,
    shapeOf: (part: CopyGeometry) => Shape,
    tensorWide: readonly (Tensor | undefined)[] = [],
  ): Piece => {
    const isTransposed = columnwise && transposed;
    const rows = geometries.map((part) => asMatrix(shapeOf(part))[isTransposed ? 1 : 0]);
    const shared = tensorWide.filter((each) => each !== undefined);
    if (isTransposed) return { request: { x: transpose(x), rows, subject, shared }, toCopyLayout: transpose };
    return {
      request: { x: x.reshape(asMatrix(x.shape)), rows, subject, shared },
      toCopyLayout: (gathered) => gathered,
    };
  };
  const shared = [isTensorWide(t.spec.tile) ? scaleInv : undefined, t.spec.rowScaled ? undefined : amax];
  const codes = pieceOf(data, geometry.data === "transposed", ({ dataShape }) => dataShape, shared);
  const scales = isTensorWide(t.spec.tile)
    ? undefined
    : pieceOf(
        relayoutScales(t, direction, "logical"),
        geometry.scale === "transposed",
        ({ scaleShape }) => scaleShape,
      );
  return {
    pieces: scales ? [codes, scales] : [codes],
    assemble([gathered, scalesGathered = scaleInv]) {
      const fields = {
        data: (gathered as Tensor).reshape(geometry.dataShape),
        scaleInv: scalesGathered.reshape(geometry.scaleShape),
        geometry,
      };
      return amax ? { ...fields, amax: amax.reshape(amax.shape) } : fields;
    },
  };
}

/**
 * Gathers the rowwise copy of the same rows of each rank on the side stream. The result is [ranks * count, K]. No block may
 * extend beyond these rows.
 */
export function gatherRowsOnSideStream(
  group: ProcessGroup,
  t: QuantizedTensor,
  rows: RowRange,
): QuantizedTensor {
  return onSideStream(group.backend, () => {
    // sent tensors are freed on the side stream: a free on the main stream would make the main stream wait for the exchange
    using scope = new Scope();
    const counts = group.ranks.map(() => rows.count);
    const { requests, assemble } = quantizedGather(rowwiseRowsOf(t, rows), ROWWISE, t.quantizer, counts);
    return scope.keep(assemble(group.allGatherCoalesced(requests)));
  });
}

/**
 * Returns the quantized tensor with the rowwise codes `codes` [rows, K] and the copies of `usage`. `t` has some of these rows,
 * and the per-tensor scale.
 */
export function quantizedFromCodes(t: QuantizedTensor, codes: Tensor, usage: Usage): QuantizedTensor {
  using scope = new Scope();
  const { scaleInv, amax } = t.copy("rowwise");
  const geometry = copyGeometry(t.spec, asMatrix(codes.shape), "rowwise", "logical");
  const fields = {
    data: codes.reshape(geometry.dataShape),
    scaleInv: scaleInv.reshape(scaleInv.shape),
    geometry,
  };
  const rowwise = amax ? { ...fields, amax: amax.reshape(amax.shape) } : fields;
  const assemble = withLayout(
    quantizedOf(t, t.spec, codes.shape, t.quantizer, [rowwise, undefined]),
    t.quantizer,
  );
  return scope.keep(withUsage(assemble, usage));
}

/**
 * Returns the rowwise copy of some rows of a quantized tensor, as a matrix. It is a view of `t` if the alignment of views allows
 * it. No block may extend beyond these rows.
 */
export function rowwiseRowsOf(t: QuantizedTensor, { first, count }: RowRange): QuantizedTensor {
  using scope = new Scope();
  const [, columns] = asMatrix(t.shape);
  const copy = t.copy("rowwise");
  const geometryOfRows = (rows: number): CopyGeometry =>
    copyGeometry(t.spec, [rows, columns], "rowwise", "logical");
  const [before, geometry] = [geometryOfRows(first), geometryOfRows(count)];
  const rowwise = {
    data: viewOrSlice(copy.data, elementCount(before.dataShape), geometry.dataShape),
    scaleInv: isTensorWide(t.spec.tile)
      ? copy.scaleInv.reshape(copy.scaleInv.shape)
      : viewOrSlice(
          relayoutScales(t, "rowwise", "logical"),
          elementCount(before.scaleShape),
          geometry.scaleShape,
        ),
    geometry,
  };
  const rowwiseWithAmax = copy.amax
    ? { ...rowwise, amax: amaxOfRows(copy.amax, t.spec, { first, count }) }
    : rowwise;
  return scope.keep(
    withLayout(
      quantizedOf(t, t.spec, [count, columns], t.quantizer, [rowwiseWithAmax, undefined]),
      t.quantizer,
    ),
  );
}

/** The amaxes of these rows: the amax of the tensor, or with `rowScaled` one for each row. */
function amaxOfRows(
  amax: Tensor<"f32">,
  { rowScaled }: QuantizeSpec,
  { first, count }: RowRange,
): Tensor<"f32"> {
  return rowScaled ? viewOrSlice(amax, first, [count]) : amax.reshape(amax.shape);
}

/**
 * Clones the amaxes of a copy's rows: the amax of the tensor, or with `rowScaled` one for each row. A columnwise `rowScaled` copy
 * has one for each column, and all of them are cloned.
 */
function amaxOfCopy(
  amax: Tensor<"f32">,
  { rowScaled }: QuantizeSpec,
  direction: Direction,
  { first, count }: RowRange,
): Tensor<"f32"> {
  return rowScaled && direction === "rowwise" ? amax.slice(first, [count]) : amax.clone();
}

/**
 * Returns `count` rows of a quantized tensor, starting at row `first`, with all copies of `t`. No block may extend beyond these
 * rows. The inverse of `gatherQuantized`.
 */
export function rowsOfQuantized(
  t: QuantizedTensor,
  { first, count }: { readonly first: number; readonly count: number },
  ops: QuantizerOps,
): QuantizedTensor {
  using scope = new Scope();
  const [, columns] = asMatrix(t.shape);
  const copies = DIRECTIONS.map((direction): QuantizedCopy | undefined => {
    const copy = t[direction];
    if (!copy) return undefined;
    const geometryOfRows = (rows: number): CopyGeometry =>
      copyGeometry(t.spec, [rows, columns], direction, "logical");
    const [before, geometry] = [geometryOfRows(first), geometryOfRows(count)];
    const sliceRows = (x: Tensor, transposed: boolean, precedingShape: Shape, shape: Shape): Tensor => {
      if (direction === "rowwise" || !transposed) return x.slice(elementCount(precedingShape), shape);
      const [lineLength, rows] = asMatrix(shape);
      return transpose(transpose(x).slice(elementCount(precedingShape), [rows, lineLength]));
    };
    const fields = {
      data: sliceRows(copy.data, geometry.data === "transposed", before.dataShape, geometry.dataShape),
      scaleInv: isTensorWide(t.spec.tile)
        ? copy.scaleInv.clone()
        : sliceRows(
            relayoutScales(t, direction, "logical"),
            geometry.scale === "transposed",
            before.scaleShape,
            geometry.scaleShape,
          ),
      geometry,
    };
    return copy.amax
      ? { ...fields, amax: amaxOfCopy(copy.amax, t.spec, direction, { first, count }) }
      : fields;
  });
  return scope.keep(withLayout(quantizedOf(t, t.spec, [count, ...t.shape.slice(1)], ops, copies), ops));
}

/** Returns memory for a tensor of `count` rows that has the copies of `t`. */
export function emptyRows(t: QuantizedTensor, count: number): QuantizedTensor {
  using scope = new Scope();
  const [, columns] = asMatrix(t.shape);
  const copies = DIRECTIONS.map((direction): QuantizedCopy | undefined => {
    const copy = t[direction];
    if (!copy) return undefined;
    const geometry = copyGeometry(t.spec, [count, columns], direction, t.scaleLayout);
    const { data, scaleInv, amax } = copy;
    const fields = {
      data: new Tensor(t.backend, data.dtype, geometry.dataShape),
      scaleInv: new Tensor(t.backend, scaleInv.dtype, geometry.scaleShape),
      geometry,
    };
    return amax
      ? { ...fields, amax: new Tensor(t.backend, "f32", geometry.amaxShape ?? amax.shape) }
      : fields;
  });
  return scope.keep(quantizedOf(t, t.spec, [count, ...t.shape.slice(1)], t.quantizer, copies));
}

/**
 * Concatenates the rows of quantized tensors, as `gatherQuantized` does for tensors on several ranks. The result has the copies
 * of the first tensor. All tensors have the same quantization, and the same per-tensor scale and amax if there is one. No block
 * may extend over two tensors.
 */
export function concatenateRows(tensors: readonly QuantizedTensor[]): QuantizedTensor {
  using scope = new Scope();
  const [first] = tensors as readonly [QuantizedTensor];
  const usage = { rowwise: first.rowwise !== undefined, columnwise: first.columnwise !== undefined };
  const rows = tensors.map(({ shape }) => shape[0] as number);
  const gathers = tensors.map((part) => quantizedGather(part, usage, part.quantizer, rows));
  const [{ requests, assemble }] = gathers as [QuantizedGather];
  const gathered = requests.map((_, i) =>
    concatenate(gathers.map((each) => (each.requests[i] as GatherRequest).x)),
  );
  return scope.keep(assemble(gathered));
}

/** Concatenates matrices along their rows. */
function concatenate(tensors: readonly Tensor[]): Tensor {
  const [{ backend, dtype, shape }] = tensors as [Tensor];
  const out = new Tensor(backend, dtype, [
    tensors.reduce((rows, part) => rows + (part.shape[0] as number), 0),
    ...shape.slice(1),
  ]);
  let offset = 0;
  for (const part of tensors) {
    out.paste(part, offset);
    offset += part.size;
  }
  return out;
}

function quantizedOf(
  { dtype, scaleLayout }: Pick<QuantizedTensor, "dtype" | "scaleLayout">,
  spec: QuantizeSpec,
  shape: Shape,
  ops: QuantizerOps,
  [rowwise, columnwise]: readonly (QuantizedCopy | undefined)[],
): QuantizedTensor {
  return trustedQuantized({ spec, shape, dtype, scaleLayout, ops, rowwise, columnwise });
}

/** Converts the scales of all copies from the logical layout to the layout of the tensor. */
function withLayout(t: QuantizedTensor, ops: QuantizerOps): QuantizedTensor {
  const { scaleLayout } = t;
  if (scaleLayout === "logical") return t;
  const copies = DIRECTIONS.map((direction): QuantizedCopy | undefined => {
    const copy = t[direction];
    const geometry = copy && copyGeometry(t.spec, asMatrix(t.shape), direction, scaleLayout);
    return geometry && { ...copy, scaleInv: relayoutScales(t, direction, scaleLayout), geometry };
  });
  return quantizedOf(t, t.spec, t.shape, ops, copies);
}

/**
 * Converts the data layout COMPACT to GEMM_READY: the codes and scales of the columnwise copy are transposed (numerics.md §3.3).
 */
function toGemmReady(t: QuantizedTensor, ops: QuantizerOps): QuantizedTensor {
  const spec = Object.freeze({ ...t.spec, compact: false });
  const copies = DIRECTIONS.map((direction): QuantizedCopy | undefined => {
    const copy = t[direction];
    if (!copy) return undefined;
    const geometry = copyGeometry(spec, asMatrix(t.shape), direction, "logical");
    if (direction === "rowwise") return { ...copy, geometry };
    return { data: transpose(copy.data), scaleInv: transpose(copy.scaleInv), geometry };
  });
  return withLayout(quantizedOf(t, spec, t.shape, ops, copies), ops);
}
