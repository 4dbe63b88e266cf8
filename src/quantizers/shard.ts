/** Tensors that are divided among ranks and quantized as one tensor. */
import type { MatrixPart } from "../backends/ops.js";
import { ArgumentError } from "../errors.js";
import { execute } from "../ops/execute.js";
import { hadamard } from "../ops/quantize/hadamard.js";
import type { QuantizeInputs } from "../ops/quantize/quantize.js";
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

/**
 * Returns the shard of a weight whose rows are divided among `group`. If the weight is itself a part of a larger weight, `outer`
 * is that part; amaxes are then reduced over both groups.
 *
 * @shared
 */
export function rowShard(group: ShardGroup, outer: Shard | undefined): Shard {
  if (!outer) return { group, dimension: "rows" };
  const both: ShardGroup = {
    rank: group.rank * outer.group.size + outer.group.rank,
    size: group.size * outer.group.size,
    reduceMax(tensors) {
      group.reduceMax(tensors);
      outer.group.reduceMax(tensors);
    },
  };
  return { group: both, dimension: "rows" };
}

/** Returns a group of ranks. Throws `ArgumentError` for anything else. */
const shardGroup: Domain = (user, name, value) => {
  const group = (typeof value === "object" && value !== null ? value : {}) as Partial<ShardGroup>;
  const [rank, size, reduceMax] = ["rank", "size", "reduceMax"].map((key) => fieldOf(user, name, group, key));
  const isRank = Number.isSafeInteger(rank) && Number.isSafeInteger(size);
  if (isRank && Number(rank) >= 0 && Number(rank) < Number(size) && typeof reduceMax === "function")
    return group;
  throw new ArgumentError(
    `${user}: ${name} is not a group of ranks; give a ProcessGroup, or an object with rank, size and reduceMax`,
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
  for (const each of amaxes) scope.keep(each);
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
  { group: { rank, size }, dimension, pieces = 1 }: Shard,
  [rows, columns]: readonly [rows: number, columns: number],
): MatrixPart {
  if (dimension === "rows")
    return { rows: rows * size, columns, row: rows * rank, column: 0, width: columns, stride: columns };
  const width = columns / pieces;
  return { rows, columns: columns * size, row: 0, column: width * rank, width, stride: width * size };
}
