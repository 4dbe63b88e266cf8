/** Quantized tensors whose rows are distributed over ranks. Gathering and slicing them preserves codes and scales exactly. */
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
 * Gathers a quantized tensor of which each rank has some rows, with the copies of `usage`. `rows` has the number of rows of each
 * rank; by default all have as many as this one. If the shards were quantized as parts of the whole tensor, the result is what
 * the quantizer would return for the whole. Codes and scales are sent without padding. Scales and amaxes of the whole tensor are
 * not sent, because all ranks have the same. A columnwise copy that can be derived from the rowwise copy is derived after the
 * gather. The data layout COMPACT becomes GEMM_READY. `t` must have each copy of `usage` that cannot be derived. `ops` are the
 * operations of the quantizer. Throws `DistributedError`, as a disagreement, if the specs or the nominal dtypes of the ranks
 * differ.
 */
export function gatherQuantized(
  group: ProcessGroup,
  t: QuantizedTensor,
  usage: Usage,
  ops: QuantizerOps,
  rows: readonly number[] = group.ranks.map(() => t.shape[0] as number),
): QuantizedTensor {
  using scope = new Scope();
  const { requests, whole } = quantizedGather(t, usage, ops, rows);
  return scope.keep(whole(group.allGatherCoalesced(requests)));
}

/** What ranks send of a quantized tensor, and what becomes of it. */
export interface QuantizedGather {
  readonly requests: readonly GatherRequest[];
  /** The whole, from what was gathered by the requests; it may share memory with that, which the caller disposes of. */
  readonly whole: (gathered: readonly Tensor[]) => QuantizedTensor;
}

/** The two halves of `gatherQuantized`. */
export function quantizedGather(
  t: QuantizedTensor,
  usage: Usage,
  ops: QuantizerOps,
  rows: readonly number[],
): QuantizedGather {
  const derives = isDirectionless(t.spec);
  const sent = (direction: Direction): boolean => (derives ? direction === "rowwise" : usage[direction]);
  const shapes = rows.map((count) => [count, ...t.shape.slice(1)]);
  const shape = [rows.reduce((total, count) => total + count, 0), ...t.shape.slice(1)];
  const copies = DIRECTIONS.map((direction) =>
    sent(direction) ? copyGather(t, direction, { shape, shapes }) : undefined,
  );
  return {
    requests: copies.flatMap((copy) => copy?.pieces.map(({ request }) => request) ?? []),
    whole(gathered) {
      using scope = new Scope();
      const left = [...gathered];
      const made = copies.map((copy) =>
        copy?.whole(copy.pieces.map(({ turn }) => turn(left.shift() as Tensor))),
      );
      const all = withLayout(madeOf(t, t.spec, shape, ops, made), ops);
      const ready = all.spec.compact ? gemmReady(all, ops) : all;
      return scope.keep(derives ? inCopies(ready, usage) : ready);
    },
  };
}

/**
 * Returns what has these copies. The open scope owns it and the rowwise copy of `t`, from which the columnwise one is derived. A
 * scale per tensor is that of both, since all that read this rank's scale would wait for work that computes with it.
 */
function inCopies(t: QuantizedTensor, usage: Usage): QuantizedTensor {
  if (!isTensorWide(t.spec.tile) || !usage.columnwise) return t.updateUsage(usage);
  const rowwise = t.copy("rowwise");
  const geometry = copyGeometry(t.spec, asMatrix(t.shape), "columnwise", t.scaleLayout);
  const scaleInv = rowwise.scaleInv.reshape(geometry.scaleShape);
  const columnwise = { data: transpose(rowwise.data), scaleInv, geometry };
  return madeOf(t, t.spec, t.shape, t.quantizer, [usage.rowwise ? rowwise : undefined, columnwise]);
}

/** Codes or scales of a copy. */
interface Piece {
  readonly request: GatherRequest;
  /** Lays what was gathered as it lies in the copy. */
  readonly turn: (gathered: Tensor) => Tensor;
}

/** What is sent of a copy, and the copy of the whole, its scales in the logical layout. */
function copyGather(
  t: QuantizedTensor,
  direction: Direction,
  { shape, shapes }: { readonly shape: Shape; readonly shapes: readonly Shape[] },
): {
  readonly pieces: readonly Piece[];
  readonly whole: (turned: readonly Tensor[]) => QuantizedCopy;
} {
  const { data, scaleInv, amax } = t.copy(direction);
  const geometryOf = (of: Shape): CopyGeometry => copyGeometry(t.spec, asMatrix(of), direction, "logical");
  const geometry = geometryOf(shape);
  const parts = shapes.map(geometryOf);
  const columnwise = direction === "columnwise";
  const subject = `codes and scales by ${specText(t.spec)}, quantized from ${t.dtype}`;
  const piece = (x: Tensor, transposed: boolean, shapeOf: (part: CopyGeometry) => Shape): Piece => {
    const turned = columnwise && transposed;
    const rows = parts.map((part) => asMatrix(shapeOf(part))[turned ? 1 : 0]);
    if (turned) return { request: { x: transpose(x), rows, subject }, turn: transpose };
    return { request: { x: x.reshape(asMatrix(x.shape)), rows, subject }, turn: (gathered) => gathered };
  };
  const codes = piece(data, geometry.data === "transposed", ({ dataShape }) => dataShape);
  const scales = isTensorWide(t.spec.tile)
    ? undefined
    : piece(
        relayoutScales(t, direction, "logical"),
        geometry.scale === "transposed",
        ({ scaleShape }) => scaleShape,
      );
  return {
    pieces: scales ? [codes, scales] : [codes],
    whole([gathered, scalesGathered = scaleInv]) {
      const made = {
        data: (gathered as Tensor).reshape(geometry.dataShape),
        scaleInv: scalesGathered.reshape(geometry.scaleShape),
        geometry,
      };
      return amax ? { ...made, amax: amax.reshape(amax.shape) } : made;
    },
  };
}

/**
 * Gathers the rowwise copy of the same rows of each rank on the side stream. The result is [ranks * count, K]. No block may
 * extend beyond these rows.
 */
export function gatherRowsAside(group: ProcessGroup, t: QuantizedTensor, rows: RowRange): QuantizedTensor {
  return onSideStream(group.backend, () => {
    // if what is sent were freed outside of this call, the main stream would wait for the exchange
    using scope = new Scope();
    const counts = group.ranks.map(() => rows.count);
    const { requests, whole } = quantizedGather(rowwiseRowsOf(t, rows), ROWWISE, t.quantizer, counts);
    return scope.keep(whole(group.allGatherCoalesced(requests)));
  });
}

/**
 * Returns the quantized tensor with these rowwise codes [rows, K], in the copies of `usage`. `t` has some of its rows, and the
 * scale, which is one for the whole tensor.
 */
export function wholeOfCodes(t: QuantizedTensor, codes: Tensor, usage: Usage): QuantizedTensor {
  using scope = new Scope();
  const { scaleInv, amax } = t.copy("rowwise");
  const geometry = copyGeometry(t.spec, asMatrix(codes.shape), "rowwise", "logical");
  const made = {
    data: codes.reshape(geometry.dataShape),
    scaleInv: scaleInv.reshape(scaleInv.shape),
    geometry,
  };
  const rowwise = amax ? { ...made, amax: amax.reshape(amax.shape) } : made;
  const whole = withLayout(madeOf(t, t.spec, codes.shape, t.quantizer, [rowwise, undefined]), t.quantizer);
  return scope.keep(inCopies(whole, usage));
}

/**
 * Returns the rowwise copy of some rows of a quantized tensor, as a matrix. It shares memory with `t` where a view can begin. No
 * block may extend beyond these rows.
 */
export function rowwiseRowsOf(t: QuantizedTensor, { first, count }: RowRange): QuantizedTensor {
  using scope = new Scope();
  const [, columns] = asMatrix(t.shape);
  const copy = t.copy("rowwise");
  const of = (rows: number): CopyGeometry => copyGeometry(t.spec, [rows, columns], "rowwise", "logical");
  const [before, geometry] = [of(first), of(count)];
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
  const made = copy.amax ? { ...rowwise, amax: amaxOfRows(copy.amax, t.spec, { first, count }) } : rowwise;
  return scope.keep(
    withLayout(madeOf(t, t.spec, [count, columns], t.quantizer, [made, undefined]), t.quantizer),
  );
}

/** The amaxes of these rows: that of the tensor, or with `rowScaled` one for each row. */
function amaxOfRows(
  amax: Tensor<"f32">,
  { rowScaled }: QuantizeSpec,
  { first, count }: RowRange,
): Tensor<"f32"> {
  return rowScaled ? viewOrSlice(amax, first, [count]) : amax.reshape(amax.shape);
}

/**
 * A copy of the amaxes of a quantized copy's rows: the one of the tensor, or with `rowScaled` those of the rows, or of all
 * columns if the copy is columnwise. /
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
    const of = (rows: number): CopyGeometry => copyGeometry(t.spec, [rows, columns], direction, "logical");
    const [before, geometry] = [of(first), of(count)];
    const cut = (x: Tensor, transposed: boolean, skipped: Shape, shape: Shape): Tensor => {
      if (direction === "rowwise" || !transposed) return x.slice(elementCount(skipped), shape);
      const [across, rows] = asMatrix(shape);
      return transpose(transpose(x).slice(elementCount(skipped), [rows, across]));
    };
    const made = {
      data: cut(copy.data, geometry.data === "transposed", before.dataShape, geometry.dataShape),
      scaleInv: isTensorWide(t.spec.tile)
        ? copy.scaleInv.clone()
        : cut(
            relayoutScales(t, direction, "logical"),
            geometry.scale === "transposed",
            before.scaleShape,
            geometry.scaleShape,
          ),
      geometry,
    };
    return copy.amax ? { ...made, amax: amaxOfCopy(copy.amax, t.spec, direction, { first, count }) } : made;
  });
  return scope.keep(withLayout(madeOf(t, t.spec, [count, ...t.shape.slice(1)], ops, copies), ops));
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
    const made = {
      data: new Tensor(t.backend, data.dtype, geometry.dataShape),
      scaleInv: new Tensor(t.backend, scaleInv.dtype, geometry.scaleShape),
      geometry,
    };
    return amax ? { ...made, amax: new Tensor(t.backend, "f32", geometry.amaxShape ?? amax.shape) } : made;
  });
  return scope.keep(madeOf(t, t.spec, [count, ...t.shape.slice(1)], t.quantizer, copies));
}

/**
 * Returns the tensor whose rows are those of the parts, one after the other, with the copies of the first. All parts have the
 * same quantization, and the scale and amax of the whole if it has one. No block may extend beyond a part. What ranks gather,
 * on one rank.
 */
export function joinedRows(parts: readonly QuantizedTensor[]): QuantizedTensor {
  using scope = new Scope();
  const [first] = parts as readonly [QuantizedTensor];
  const usage = { rowwise: first.rowwise !== undefined, columnwise: first.columnwise !== undefined };
  const rows = parts.map(({ shape }) => shape[0] as number);
  const gathers = parts.map((part) => quantizedGather(part, usage, part.quantizer, rows));
  const [{ requests, whole }] = gathers as [QuantizedGather];
  const gathered = requests.map((_, i) =>
    concatenated(gathers.map((each) => (each.requests[i] as GatherRequest).x)),
  );
  return scope.keep(whole(gathered));
}

/** Concatenates matrices along their rows. */
function concatenated(parts: readonly Tensor[]): Tensor {
  const [{ backend, dtype, shape }] = parts as [Tensor];
  const out = new Tensor(backend, dtype, [
    parts.reduce((rows, part) => rows + (part.shape[0] as number), 0),
    ...shape.slice(1),
  ]);
  let at = 0;
  for (const part of parts) {
    out.paste(part, at);
    at += part.size;
  }
  return out;
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

/** Converts the scales of all copies from the logical layout to the layout of the tensor. */
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

/**
 * Converts the data layout COMPACT to GEMM_READY: the codes and scales of the columnwise copy are transposed (numerics.md §3.3).
 */
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
