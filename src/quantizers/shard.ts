/** Tensors that are divided among ranks and quantized as one tensor. */
import type { MatrixPart } from "../backends/ops.js";
import { ArgumentError } from "../errors.js";
import { execute } from "../ops/execute.js";
import { hadamard } from "../ops/quantize/hadamard.js";
import { DRAWN_TOGETHER, type QuantizeInputs } from "../ops/quantize/quantize.js";
import { type Domain, fieldOf, integer, needed, oneOf, optionsOf } from "../options.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";

/** A group of processes that reduce their amaxes, such as a `ProcessGroup`. */
export interface AmaxReductionGroup {
  /** The number of members. With one member, nothing has to be reduced. */
  readonly size: number;
  /**
   * Replaces each element by its maximum over all members. All members call it in the same order, with tensors of the same
   * shapes.
   */
  reduceMax(tensors: readonly Tensor<"f32">[]): void;
}

/** The ranks among which a tensor is divided, such as a `ProcessGroup`. */
export interface ShardGroup extends AmaxReductionGroup {
  /** The number of this rank, from 0. */
  readonly rank: number;
}

/** Which part of a tensor this rank has. All ranks have the same number of rows and columns. */
export interface Shard {
  /** The ranks that have parts of the tensor. All of them must quantize their parts by the same calls. */
  readonly group: ShardGroup;
  /** Whether the first dimensions (rows) or the last one (columns) are divided. */
  readonly dimension: "rows" | "columns";
  /**
   * The number of tensors that are concatenated along the columns. Each of them is divided separately. It is 2 before a gated
   * activation. Default 1.
   */
  readonly pieces?: number | undefined;
}

/** @shared How the rows of a tensor are divided among ranks. */
export interface RowDivision {
  readonly group: ShardGroup;
  /** The number of rows of each rank. */
  readonly rowsPerRank: readonly number[];
  /** The index of this rank's first row. */
  readonly firstRow: number;
}

/** The ranks among which a weight is divided by rows, after `outer` has divided it among other ranks. */
class RowsGroup implements ShardGroup {
  readonly rank: number;
  readonly size: number;

  constructor(
    private readonly division: RowDivision,
    private readonly outer: Shard | undefined,
  ) {
    const { group } = division;
    const { rank, size } = outer?.group ?? { rank: 0, size: 1 };
    this.rank = group.rank * size + rank;
    this.size = group.size * size;
  }

  /** The group over which amaxes are reduced: the same object for all weights that only `division.group` divides. */
  get amaxGroup(): AmaxReductionGroup {
    return this.outer ? this : this.division.group;
  }

  reduceMax(tensors: readonly Tensor<"f32">[]): void {
    this.division.group.reduceMax(tensors);
    this.outer?.group.reduceMax(tensors);
  }

  /** The position of this rank's rows in the full weight. */
  partOf([rows, columns]: readonly [rows: number, columns: number]): MatrixPart {
    const { rowsPerRank, firstRow } = this.division;
    const size = [rowsPerRank.reduce((sum, count) => sum + count, 0), columns] as const;
    const outerPart = this.outer ? partOf(this.outer, size) : wholeOf(size);
    // a part is in units of rows that share draws; a rank without rows has no draws
    const allRows = Math.ceil(outerPart.rows / DRAWN_TOGETHER) * DRAWN_TOGETHER;
    const row = rows === 0 ? 0 : outerPart.row + firstRow;
    return { ...outerPart, rows: allRows, row };
  }
}

/** The position of a full tensor. */
function wholeOf([rows, columns]: readonly [rows: number, columns: number]): MatrixPart {
  return { rows, columns, row: 0, column: 0, width: columns, stride: columns };
}

/**
 * Returns the shard of a weight whose rows are divided among ranks. If the weight is itself a part of a larger weight, `outer`
 * is that part; amaxes are then reduced over both groups.
 *
 * @shared
 */
export function rowShard(division: RowDivision, outer: Shard | undefined): Shard {
  return { group: new RowsGroup(division, outer), dimension: "rows" };
}

/** @shared Returns the group over which amaxes are reduced. Amaxes of several tensors with the same group are reduced at once. */
export function amaxGroupOf({ group }: Shard): AmaxReductionGroup {
  return group instanceof RowsGroup ? group.amaxGroup : group;
}

/** Returns a group of ranks. Throws `ArgumentError` for anything else. */
const shardGroup: Domain = (caller, name, value) => {
  const group = (typeof value === "object" && value !== null ? value : {}) as Partial<ShardGroup>;
  const [rank, size, reduceMax] = ["rank", "size", "reduceMax"].map((key) =>
    fieldOf(caller, name, group, key),
  );
  const isRank = Number.isSafeInteger(rank) && Number.isSafeInteger(size);
  if (isRank && Number(rank) >= 0 && Number(rank) < Number(size) && typeof reduceMax === "function")
    return group;
  throw new ArgumentError(
    `${caller}: ${name} is not a group of ranks; give a ProcessGroup, or an object with rank, size and reduceMax`,
  );
};

/** @shared Throws `ArgumentError` for anything but a shard. */
export const checkShard = optionsOf<Shard>({
  group: needed(shardGroup),
  dimension: needed(oneOf(["rows", "columns"])),
  pieces: integer(1),
});

/**
 * Returns the amaxes of the full tensor: the maxima of all ranks' amaxes. `values` is this rank's part. `unrounded` are the
 * values before they were rounded to its dtype; their amax is used, except with the Hadamard transform (numerics.md §5.2, §7.3).
 * The caller disposes of the results.
 *
 * @shared
 */
export function wholeAmaxes(
  { group }: Shard,
  spec: QuantizeSpec,
  values: Tensor<WideDType>,
  unrounded: Tensor<WideDType>,
): Pick<QuantizeInputs, "amax" | "amaxColumnwise"> {
  using scope = new Scope();
  const amaxes = shardAmaxes(spec, values, unrounded);
  group.reduceMax(amaxes);
  const [amax, amaxColumnwise] = amaxes;
  for (const each of amaxes) scope.keep(each);
  return { amax, amaxColumnwise };
}

/**
 * The amaxes of this shard, before their reduction over the group: the amax of all values, and with the Hadamard transform the
 * amax of the columnwise copy. The caller disposes of them.
 *
 * @shared
 */
export function shardAmaxes(
  { rht, rhtSigns }: QuantizeSpec,
  values: Tensor<WideDType>,
  unrounded: Tensor<WideDType>,
): readonly Tensor<"f32">[] {
  using scope = new Scope();
  const amaxes = [amaxOf(rht ? values : unrounded), ...(rht ? [amaxOf(hadamard(values, rhtSigns))] : [])];
  for (const amax of amaxes) scope.keep(amax);
  return amaxes;
}

/** @shared Returns max |x|, where NaN is ignored, f32 [1]. It is 0 for an empty tensor. */
export function amaxOf(x: Tensor<WideDType>): Tensor<"f32"> {
  const out = new Tensor(x.backend, "f32", [1]);
  execute(x.backend, "amax", { x, out });
  return out;
}

/** @shared Returns the position of a part of that size in the full tensor. */
export function partOf(
  { group, dimension, pieces = 1 }: Shard,
  [rows, columns]: readonly [rows: number, columns: number],
): MatrixPart {
  if (group instanceof RowsGroup) return group.partOf([rows, columns]);
  const { rank, size } = group;
  if (dimension === "rows") return { ...wholeOf([rows * size, columns]), row: rows * rank };
  const width = columns / pieces;
  return { rows, columns: columns * size, row: 0, column: width * rank, width, stride: width * size };
}
